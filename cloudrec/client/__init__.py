"""The Python API."""

from __future__ import annotations

from cloudrec.client.client import Client
from cloudrec.client.runs import LaunchedRun

__all__ = ["Client", "LaunchedRun"]
