"""Clusters that use the storage of another cluster."""
