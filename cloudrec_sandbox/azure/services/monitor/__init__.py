"""Azure Monitor's managed service for Prometheus: workspaces, data collection, and groups of rules."""
