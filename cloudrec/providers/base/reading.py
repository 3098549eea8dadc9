"""Retries of reading calls after network errors and rate limits. The engine alone retries changing calls."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, TypeVar

import stamina

from cloudrec.errors import MISREAD, MisreadAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # stamina's hook for an error: whether to retry, or the seconds to wait before the retry.
    Again = Callable[[Exception], bool | float]

T = TypeVar("T")


_ATTEMPTS = 10
_OURS = {"cloudrec", "cloudrec_contract"}
_SHOWN = 200  # characters of an error's message
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0
# stamina logs each retry; without a handler, logging would print that to stderr.
logging.getLogger("stamina").addHandler(logging.NullHandler())


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
        with attempt, answers_read():
            return work()
    raise AssertionError("stamina ends its loop by returning or raising")


@contextmanager
def answers_read() -> Iterator[None]:
    """Raise MisreadAnswerError for what Python raises where the block reads an answer.

    The message has the place that read it: a report of a defect of cloudrec, which looks the same, needs it.
    """
    try:
        yield
    except MISREAD as error:
        # An error of an SDK may be a ValueError, too, and has another meaning.
        if type(error).__module__.partition(".")[0] not in {*sys.stdlib_module_names, *_OURS}:
            raise
        place = extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        what = f"{type(error).__name__}: {str(error)[:_SHOWN]} ({where})"
        raise MisreadAnswerError(f"an answer cannot be read: {what}") from error
