"""Identities and roles on Google Cloud."""
