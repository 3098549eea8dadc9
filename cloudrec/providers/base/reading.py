"""Retries of reading calls after network errors and rate limits. The engine alone retries changing calls."""

from __future__ import annotations

from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, TypeVar

import stamina

from cloudrec.errors import MISREAD

if TYPE_CHECKING:
    from collections.abc import Callable

    # stamina's hook for an error: whether to retry, or the seconds to wait before the retry.
    Again = Callable[[Exception], bool | float]

T = TypeVar("T")


class UnreadableAnswerError(Exception):
    """An answer of a cloud says success, and is not what the service's API answers.

    A proxy's page, an empty or a damaged answer. It does not show whether the call had its effect: a read is
    retried, and the engine takes a change for LOST.
    """


def unreadable(error: Exception) -> str:
    """Return what an answer lacks; with the place that read it, which a report of a defect needs."""
    if not isinstance(error, MISREAD):
        return str(error)
    place = extract_tb(error.__traceback__)[-1:]
    where = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in place)
    return f"{type(error).__name__}: {error}{where}"


_ATTEMPTS = 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0


def read(work: Callable[[], T], *, again: Again, speed: float) -> T:
    """Make a reading call, retry it up to nine times with back-off and jitter, and return its result.

    Args:
        work: makes the call, which must change nothing.
        again: whether an error can be retried; a number is the seconds to wait first.
        speed: the clock's speed (see `engine.clock.Clock`).
    """
    for attempt in stamina.retry_context(
        on=again,
        attempts=_ATTEMPTS,
        timeout=None,
        wait_initial=_FIRST_PAUSE_S / speed,
        wait_max=_LONGEST_PAUSE_S / speed,
        wait_jitter=_FIRST_PAUSE_S / speed,
    ):
        with attempt:
            return work()
    raise AssertionError("stamina ends its loop by returning or raising")
