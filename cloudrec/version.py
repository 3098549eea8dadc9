"""The version of cloudrec. It is apart from the package, which also exports the client."""

__version__ = "0.1.0"
