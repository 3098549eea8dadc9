"""Kubernetes: the client of its API, manifests, add-ons, and the causes of pods that do not run."""
