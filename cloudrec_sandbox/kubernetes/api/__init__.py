"""Calls for resources, and the cluster that they change."""
