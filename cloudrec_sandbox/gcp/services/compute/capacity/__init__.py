"""What Compute Engine offers: machine types, zones, quotas, available machines."""
