"""Nodes on Google Cloud: pools, and scaling them to zero."""
