"""Reads that are made again where the network or the rate limit is in their way; changing calls never are."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import stamina

if TYPE_CHECKING:
    from collections.abc import Callable

    # What stamina makes of an error: whether to go on, or how many seconds to wait before.
    Again = Callable[[Exception], bool | float]

T = TypeVar("T")
_ATTEMPTS = 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0


def read(work: Callable[[], T], *, again: Again, speed: float) -> T:
    """Return what a read returns, making it again with back-off and jitter.

    Args:
        work: makes the call, which changes nothing.
        again: tells of an error whether the call may be made again; a number is the seconds to wait before.
        speed: of the clock that the cloud lives by (see `engine.clock.Clock`).
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
