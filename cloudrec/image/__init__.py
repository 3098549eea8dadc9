"""The trainer's image: built from this very cloudrec, pushed to a registry, known by its digest.

context.py makes the folder that a builder is given, builders.py says how docker, podman and buildah are
asked, running.py runs them, work.py builds and pushes, records.py remembers digests.
"""
