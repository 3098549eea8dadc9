"""Exit classification: whether the end of a pod's ranks counts against the run's restarts."""
