"""The launchers, one for each operator that makes the pods."""
