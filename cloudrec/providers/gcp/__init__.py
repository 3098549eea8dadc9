"""Google Cloud: GKE, its network, its storage."""
