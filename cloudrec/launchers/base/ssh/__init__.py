"""A login node that is reached by ssh: its programs and its files."""
