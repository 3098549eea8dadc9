"""Reads the state of a run on other machines; frequent calls cause few requests."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.launchers.base import record, results

if TYPE_CHECKING:
    from cloudrec.launchers.base.protocol import RunStatus
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec

_FRESH_S = 1.0  # a state is returned again within this time
_RESULTS_S = 5.0  # between two listings of the store


class RunObserver(ABC):
    """Watches one run. Each engine implements `_now`.

    Args:
        run: the run's folder on this machine.
        spec: the run's spec, with the storage as this machine reaches it.
    """

    def __init__(self, run: RunFolder, spec: RunSpec) -> None:
        self._run, self._spec = run, spec
        self._status: RunStatus | None = None
        self._looking = threading.Lock()
        self._asked = self._brought = float("-inf")

    def status(self) -> RunStatus:
        """Return the run's state. The engine is not called if the ledger has the end of the launch.

        Several threads may call this: one of them looks, and the others get what it saw.
        """
        with self._looking:
            if self._status is None or time.monotonic() - self._asked >= _FRESH_S:
                self._status = self._now()
                self._asked = time.monotonic()
            return self._status

    @abstractmethod
    def _now(self) -> RunStatus:
        """Return the state from the ledger if it is final, else from the engine, and update the ledger."""

    def _bring(self, *, is_final: bool) -> str:
        """Copy the small results every few seconds, and at the end; return why that failed, or ""."""
        if not is_final and time.monotonic() - self._brought < _RESULTS_S:
            return ""
        self._brought = time.monotonic()
        try:
            skipped = results.bring(self._run, self._spec)
        except CloudrecError as error:
            return f"its results cannot be read: {error.message}"
        return f"its results cannot be read: {skipped[0].reason}" if skipped else ""

    def _checkpoint(self) -> int | None:
        """Return the step of the newest checkpoint; None if there is none or this machine cannot read it."""
        try:
            return results.newest_checkpoint(self._spec) if self._spec.storage else None
        except CloudrecError:
            return None

    def _note_starts(self) -> str:
        """Record each start of all ranks; return why that failed, or ""."""
        try:
            record.note_starts(self._run, self._spec, self._run.ledger.read())
        except CloudrecError as error:
            return error.message
        return ""


def with_problem(status: RunStatus, problem: str) -> RunStatus:
    """Return the status, with a problem of reading the results added unless the run has ended."""
    if not problem or status.state.is_final:
        return status
    return replace(status, cause="; ".join(part for part in (status.cause, problem) if part))
