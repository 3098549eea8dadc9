"""The lease on a run: which pod may write the run's shared files."""
