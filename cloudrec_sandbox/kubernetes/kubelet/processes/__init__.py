"""The processes of containers, and their logs."""
