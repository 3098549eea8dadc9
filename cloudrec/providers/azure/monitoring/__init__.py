"""Azure Monitor's managed service for Prometheus: where a cluster's metrics go, and how they get there."""
