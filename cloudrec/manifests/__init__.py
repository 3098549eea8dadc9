"""Kubernetes manifests: typed contexts, one for each template, and their rendering."""
