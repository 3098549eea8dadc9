"""Microsoft.Compute: sizes by region, quotas, capacity, placement groups, disks."""
