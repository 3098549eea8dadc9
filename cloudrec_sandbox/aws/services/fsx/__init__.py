"""FSx for Lustre: moto's file systems have no lifecycle, no interfaces and no links to buckets."""
