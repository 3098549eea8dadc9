"""The launchers for Kubernetes: one for each operator, and what they share."""

LAUNCHERS = {name: name for name in ("torchrun", "pytorchjob", "trainjob", "rayjob")}
