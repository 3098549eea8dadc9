"""Agents outside Kubernetes: the drivers of Ray clusters and the agents of Slurm jobs."""
