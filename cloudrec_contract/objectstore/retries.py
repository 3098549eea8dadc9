"""The retries and time-outs of requests, and the cancellation of requests in progress."""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

# 409: S3's response to one of two concurrent conditional uploads of a name; the request must be retried.
TRANSIENT = {408, 409, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """The time-outs and retries of a request.

    Attributes:
        answer_s: seconds without a byte, after which a request is aborted.
        attempts: attempts of a request by its client; they take 16 s if each fails immediately.
        rounds: rounds of such attempts.
        pause_s: the longest wait before the second round, doubled before each further one.
    """

    answer_s: float = 60.0
    attempts: int = 9
    rounds: int = 3
    pause_s: float = 2.0

    def wait_s(self, failures: int) -> float:
        """Return the seconds to wait after this many failures, at least 1."""
        return min(0.1 * 1.7**failures, 15.0)

    def pause(self, failures: int) -> None:
        """Wait a random time before a further round, so that clients that failed together retry apart."""
        longest = min(self.pause_s * 2 ** (failures - 1), 15.0)
        time.sleep(random.uniform(longest / 2, longest))  # noqa: S311 - no secret


def repeat(action: Callable[[], T], patience: Patience, may_pass: Callable[[Exception], bool]) -> T:
    """Run an action in rounds until it succeeds or raises an error that is not transient."""
    for failures in range(1, patience.rounds):
        try:
            return action()
        except Exception as error:
            if not may_pass(error):
                raise
        patience.pause(failures)
    return action()


def repeat_call(action: Callable[[], T], patience: Patience, may_pass: Callable[[Exception], bool]) -> T:
    """Make one request as often as `patience` permits, without asyncio."""
    for failures in range(1, patience.attempts):
        try:
            return action()
        except Exception as error:
            if not may_pass(error):
                raise
        time.sleep(patience.wait_s(failures))
    return action()


async def repeat_request(
    action: Callable[[], Awaitable[T]], patience: Patience, may_pass: Callable[[Exception], bool]
) -> T:
    """Retry a request as often as `patience` allows, for a client that does not retry."""
    import asyncio  # noqa: PLC0415 - a store on this machine needs none of it

    for failures in range(1, patience.attempts):
        try:
            return await action()
        except Exception as error:
            if not may_pass(error):
                raise
        await asyncio.sleep(patience.wait_s(failures))
    return await action()


def cancel_requests() -> None:
    """Cancel every request of fsspec in progress; its caller continues, with an error or without a result."""
    asyn = sys.modules.get("fsspec.asyn")
    loop = asyn.loop[0] if asyn is not None else None
    if loop is not None:
        import asyncio  # noqa: PLC0415 - as above

        loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
