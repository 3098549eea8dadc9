"""Kubernetes' API as cloudrec speaks it: where a cluster is reached, and what is asked of it."""
