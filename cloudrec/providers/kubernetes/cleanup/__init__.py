"""Orphaned resources of an adopted Kubernetes cluster: what controllers in a cluster leave behind."""
