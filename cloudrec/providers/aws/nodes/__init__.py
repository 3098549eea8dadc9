"""Nodes on AWS: pools, and scaling them to zero."""
