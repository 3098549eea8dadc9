"""Controllers of the built-in workloads: Jobs, CronJobs, Deployments, DaemonSets."""
