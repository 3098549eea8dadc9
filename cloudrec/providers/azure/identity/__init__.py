"""Identities, roles and federated credentials on Azure."""
