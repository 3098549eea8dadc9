"""Identity and Access Management (iam v1)."""
