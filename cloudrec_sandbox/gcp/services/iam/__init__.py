"""IAM: service accounts, roles, and the policies of projects, buckets and repositories."""
