"""Managed Lustre (lustre v1): file systems that need a network with a connection to Google's services."""
