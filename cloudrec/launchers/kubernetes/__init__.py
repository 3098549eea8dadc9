"""The launchers for Kubernetes: one for each operator, and what they share."""

LAUNCHERS = {name: f"operators.{name}" for name in ("torchrun", "pytorchjob", "trainjob", "jobset", "rayjob")}
