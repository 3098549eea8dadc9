"""Identities and roles on an adopted Kubernetes cluster."""
