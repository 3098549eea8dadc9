"""The defaults that an API server fills in and the values that it refuses, kind by kind."""

from __future__ import annotations

from cloudrec_sandbox.kubernetes.rules.kinds import (  # they register their rules
    budgets,
    definitions,
    limits,
    networks,
    nodes,
    resizes,
    runs,
    services,
    specs,
    statuses,
    stores,
)
from cloudrec_sandbox.kubernetes.rules.policy import Rules

__all__ = [
    "Rules",
    "budgets",
    "definitions",
    "limits",
    "networks",
    "nodes",
    "resizes",
    "runs",
    "services",
    "specs",
    "statuses",
    "stores",
]
