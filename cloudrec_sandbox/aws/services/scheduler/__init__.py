"""EventBridge Scheduler: schedules, their groups, and the calls that they make."""
