"""One container: a process of its own that makes its view of the file system, starts it and follows it.

It knows nothing of Kubernetes and imports the standard library alone, so that a container starts at once.
"""
