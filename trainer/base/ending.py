"""The facts about this rank's end, collected while it runs and written as one event at its end."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cloudrec_contract.end_event import FILE_VARIABLE, EndEvent, kind_of

_LONGEST = 4000  # characters of a cause


@dataclass(kw_only=True)
class RankEnding:
    """The facts about this rank's end.

    Attributes:
        cause: the error that ends it; empty if there is none.
        step: the last step that was completed.
        checkpoint: the step of the newest committed checkpoint.
        notice: the source that announced the end.
        machine_leaves: whether the notice announces the end of this machine.
    """

    cause: str = ""
    step: int | None = None
    checkpoint: int | None = None
    notice: str = ""
    machine_leaves: bool = False

    def blame(self, cause: str) -> None:
        """Record the error that ends it; only its first characters are kept."""
        self.cause = cause[:_LONGEST]

    def write(self, exit_code: int) -> None:
        """Write the event if the launcher named a file for it; an OSError is ignored."""
        # An event that cannot be written must not replace the exit code, which the launcher reads anyway.
        path = os.environ.get(FILE_VARIABLE)
        if not path:
            return
        event = EndEvent(exit_code=exit_code, kind=kind_of(exit_code), **vars(self))
        with suppress(OSError):
            event.write(Path(path))
