"""FSx for Lustre: moto's file systems have no life, no interfaces and no links to buckets."""
