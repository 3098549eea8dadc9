"""Who may do what: service accounts, roles, and the policies of projects, buckets and repositories."""

from cloudrec.sandbox.gcp.services.iam.accounts import usable

__all__ = ["usable"]
