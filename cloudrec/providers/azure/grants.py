"""Roles that were assigned a moment ago: for some minutes Azure may refuse what they allow."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudrec.engine.clock import Clock

_EFFECTIVE_S = 600.0  # until which a role that was assigned need not be known everywhere


class Grants:
    """Whom this process assigned roles to: for some minutes Azure may refuse them what they may do."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, principal: str, age_s: float = 0.0) -> None:
        """Note that a principal, by its object id, was given a role some seconds ago."""
        with self._lock:
            since = self._clock.now() - age_s
            self._since[principal.lower()] = max(since, self._since.get(principal.lower(), since))

    def may_lag(self, said: str) -> bool:
        """Tell whether who is refused was given a role a moment ago; anybody was, where it names nobody."""
        with self._lock:
            oldest = self._clock.now() - self._clock.limit(_EFFECTIVE_S)
            fresh = [who for who, since in self._since.items() if since > oldest]
        named = [who for who in self._since if who in said.lower()]
        return any(who in fresh for who in named) if named or "object id" in said else bool(fresh)
