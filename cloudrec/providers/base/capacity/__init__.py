"""Ways to have nodes other than on demand and as spot."""
