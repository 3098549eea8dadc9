"""Compute Engine v1, as far as clusters and their orphaned resources need it."""
