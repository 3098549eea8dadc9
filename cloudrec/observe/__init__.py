"""What is going on and what came of it: runs, their logs, their metrics and their reports. It only reads."""
