"""Cloud Scheduler v1: jobs, their cron schedules, and the calls that they make."""
