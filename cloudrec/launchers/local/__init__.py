"""The launcher for this machine: torchrun under a supervisor."""

LAUNCHERS = {"local": "launcher"}
