"""The cluster itself on AWS."""
