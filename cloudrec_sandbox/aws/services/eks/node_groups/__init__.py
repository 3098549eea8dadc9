"""Managed node groups and their nodes."""
