"""Microsoft Azure: AKS, its network, its storage."""
