"""Microsoft.Compute: sizes and where they are to be had, quotas, capacity, placement groups, disks."""
