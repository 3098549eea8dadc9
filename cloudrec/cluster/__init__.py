"""What is done inside a Kubernetes cluster: add-ons, health, and why something does not run."""
