"""Orphaned resources on AWS, which controllers in a cluster created and did not delete."""
