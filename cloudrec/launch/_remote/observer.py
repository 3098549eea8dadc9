"""Watches a run that is elsewhere, without costing much to whoever asks all the time."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.launch._remote import record, results

if TYPE_CHECKING:
    from cloudrec.launch.base import RunStatus
    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.runspec import RunSpec

_FRESH_S = 1.0  # a state asked for again within this is the same
_RESULTS_S = 5.0  # between two looks at the store


class Observer(ABC):
    """Watches one run; each engine tells how it looks.

    Args:
        run: the run's folder here.
        spec: the run, its storage as this machine reaches it.
    """

    def __init__(self, run: RunFolder, spec: RunSpec) -> None:
        self._run, self._spec = run, spec
        self._status: RunStatus | None = None
        self._asked = self._brought = float("-inf")

    def status(self) -> RunStatus:
        """Return the run's state; a launch whose end is written down is not asked about any more."""
        if self._status is None or time.monotonic() - self._asked >= _FRESH_S:
            self._status = self._now()
            self._asked = time.monotonic()
        return self._status

    @abstractmethod
    def _now(self) -> RunStatus:
        """Ask the engine, unless the end is written down, and keep the ledger."""

    def _bring(self, *, is_final: bool) -> str:
        """Bring small results now and then, and at the end; return what is in the way."""
        if not is_final and time.monotonic() - self._brought < _RESULTS_S:
            return ""
        self._brought = time.monotonic()
        try:
            results.bring(self._run, self._spec)
        except CloudrecError as error:
            return f"its results cannot be read: {error.message}"
        return ""

    def _checkpoint(self) -> int | None:
        """Return the newest checkpoint's step, where this machine can tell."""
        try:
            return results.newest_checkpoint(self._spec) if self._spec.storage else None
        except CloudrecError:
            return None

    def _note_starts(self) -> str:
        """Write down each start of all ranks; return what is in the way."""
        try:
            record.note_starts(self._run, self._spec, self._run.ledger.read())
        except CloudrecError as error:
            return error.message
        return ""


def with_problem(status: RunStatus, problem: str) -> RunStatus:
    """Add what is in the way of looking to the state of a run that goes on."""
    if not problem or status.state.is_final:
        return status
    return replace(status, cause="; ".join(part for part in (status.cause, problem) if part))
