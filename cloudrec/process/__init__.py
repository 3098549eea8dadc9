"""Processes on this machine: children that end with their parent, and a private Ray head."""
