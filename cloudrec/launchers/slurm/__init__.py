"""The launcher for Slurm: one job of several nodes."""

LAUNCHERS = {"slurm": "launcher"}
