"""Builds the trainer's image from the cloudrec that runs, and pushes it to a registry.

context.py makes the folder for the builder, builders.py has the commands of docker, podman and buildah,
running.py runs them, work.py builds and pushes, records.py keeps the digests.
"""
