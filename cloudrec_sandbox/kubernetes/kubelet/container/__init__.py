"""One container: a process that makes its view of the file system, starts the program and follows it.

It does not know Kubernetes and imports the standard library only, so that a container starts fast.
"""
