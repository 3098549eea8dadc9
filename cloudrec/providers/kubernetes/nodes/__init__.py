"""Nodes on an adopted Kubernetes cluster: pools, and scaling them to zero."""
