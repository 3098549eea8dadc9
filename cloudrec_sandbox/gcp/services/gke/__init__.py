"""Kubernetes Engine (container v1): clusters, node pools, their operations, and what they make in Compute."""
