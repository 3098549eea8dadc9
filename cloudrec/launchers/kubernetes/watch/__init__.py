"""The state and the logs of a run on Kubernetes, read from its pods and its storage."""
