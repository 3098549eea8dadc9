"""The client of the Kubernetes API: targets, credentials, calls and their errors."""
