"""What an API server fills in and what it refuses, kind by kind."""

from __future__ import annotations

from cloudrec.sandbox.kubernetes.rules.policy import Rules

__all__ = ["Rules"]
