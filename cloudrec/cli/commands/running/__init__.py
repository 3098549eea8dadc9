"""The commands that reach into a run."""
