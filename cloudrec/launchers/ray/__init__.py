"""The launcher for Ray clusters: a job in an existing cluster, or in one that is started for the run."""

LAUNCHERS = {"ray": "launcher"}
