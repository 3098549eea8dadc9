"""What the stand-in answers: /_control sets it, and long polls wait for its changes."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MACHINE = "vm-0"


@dataclass
class State:
    """All that `/_control` sets and returns; use it under `changed`."""

    aws: dict[str, Any] = field(default_factory=dict)
    azure: dict[str, Any] = field(default_factory=dict)
    gcp: dict[str, Any] = field(default_factory=dict)
    fault: dict[str, Any] = field(default_factory=dict)
    delay_s: float = 0.0
    generation: int = 1  # of session tokens
    asked: Counter[str] = field(default_factory=Counter)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def control(self, wishes: dict[str, Any]) -> None:
        """Change the named settings; ValueError for an unknown name."""
        settable = ("aws", "azure", "gcp", "fault", "delay_s", "expire_tokens")
        if unknown := sorted(set(wishes) - set(settable)):
            raise ValueError(f"unknown: {', '.join(unknown)}; there are: {', '.join(settable)}")
        with self.changed:
            for name in ("aws", "azure", "gcp", "fault"):
                if name in wishes:
                    setattr(self, name, wishes[name] or {})
            self.delay_s = float(wishes.get("delay_s", self.delay_s))
            self.generation += bool(wishes.get("expire_tokens"))
            self.changed.notify_all()

    def document(self) -> dict[str, Any]:
        """Return all settings, as JSON."""
        names = ("aws", "azure", "gcp", "fault", "delay_s")
        return {name: getattr(self, name) for name in names} | {"asked": dict(self.asked)}
