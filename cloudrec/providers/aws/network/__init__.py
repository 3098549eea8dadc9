"""The network on AWS."""
