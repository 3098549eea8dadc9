"""Orphaned resources of Google Cloud: what controllers in a cluster leave behind."""
