"""Nodes on Azure: pools, and scaling them to zero."""
