"""Managed clusters: what `up` requires of them, and what their keeper has done."""
