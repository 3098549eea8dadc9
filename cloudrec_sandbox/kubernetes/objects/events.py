"""Events have two forms: core's, which is stored, and that of events.k8s.io."""

from __future__ import annotations

from typing import Any

GROUP = "events.k8s.io"
_NAMES = {  # in events.k8s.io: in core
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {core: new for new, core in _NAMES.items()}


def to_core(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an event as it is stored."""
    return {_NAMES.get(name, name): value for name, value in obj.items()}


def from_core(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an event as events.k8s.io shows it."""
    return {_BACK.get(name, name): value for name, value in obj.items()}
