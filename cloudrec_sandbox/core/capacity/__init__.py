"""The capacity of a cloud as it changes with the time."""
