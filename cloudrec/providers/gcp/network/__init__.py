"""The network on Google Cloud."""
