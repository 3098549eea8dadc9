"""Calls to Azure: clients, models, operations, and the base classes of the drivers."""
