"""The supervisor: prepares a pod, runs torchrun in it and watches the ranks."""
