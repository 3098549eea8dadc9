"""Compute Engine v1, as far as clusters and what they leave behind need it."""
