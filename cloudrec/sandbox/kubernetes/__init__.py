"""Kubernetes: an API server of this process's own, over HTTPS."""
