"""Orphaned resources of Azure: what controllers in a cluster leave behind."""
