"""Managed Lustre (lustre v1): file systems, which need a network with a connection to Google's services."""
