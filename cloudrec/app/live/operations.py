"""What the user has asked the page to do, each in a separate thread: the page shows how it goes."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.errors import BusyError, CloudrecError

if TYPE_CHECKING:
    from collections.abc import Callable

_TOLD_S = 120.0  # a failure is shown so long


@dataclass(frozen=True, kw_only=True)
class PageOperation:
    """A stop or a resume that was asked for.

    Attributes:
        what: what is done, as the page says it: stopping, resuming.
        began: when, in seconds since the epoch.
        ended: when it ended; None until then.
        problem: why it failed; empty if it did not.
    """

    what: str
    began: float
    ended: float | None = None
    problem: str = ""


class Operations:
    """One operation for each run at a time."""

    def __init__(self) -> None:
        self._known: dict[str, PageOperation] = {}
        self._lock = threading.Lock()

    def begin(self, run: str, what: str, do: Callable[[], object], *, then: Callable[[], None]) -> None:
        """Begin an operation on a run.

        Args:
            run: the run's name.
            what: what is done, for people.
            do: does it.
            then: is called at its end, whatever that was.

        Raises:
            BusyError: another operation of this page on the run has not ended.
        """
        with self._lock:
            before = self._known.get(run)
            if before is not None and before.ended is None:
                raise BusyError(f"this page is still {before.what} run {run!r}", remedy="wait for its end")
            self._known[run] = PageOperation(what=what, began=time.time())
        threading.Thread(target=self._do, args=(run, do, then), name=f"{what} {run}", daemon=True).start()

    def of(self, run: str) -> PageOperation | None:
        """Return the operation on a run that has not ended, or has just failed; None without one."""
        with self._lock:
            found = self._known.get(run)
        if found is None or found.ended is None:
            return found
        return found if found.problem and time.time() - found.ended < _TOLD_S else None

    def _do(self, run: str, do: Callable[[], object], then: Callable[[], None]) -> None:
        problem = ""
        try:
            do()
        except CloudrecError as error:
            problem = f"{error.message}; {error.remedy}" if error.remedy else error.message
        except Exception as error:  # noqa: BLE001 - the page says it
            problem = f"a bug in cloudrec: {type(error).__name__}: {error}"
        with self._lock:
            self._known[run] = replace(self._known[run], ended=time.time(), problem=problem)
        then()
