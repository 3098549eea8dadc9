"""Identities and roles on AWS."""
