"""The guard: a CronJob in the cluster that enforces the cluster's end."""
