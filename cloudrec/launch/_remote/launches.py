"""Which launch of a run comes next, and what must not be launched again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import UsageError
from cloudrec.launch.ledger import last_launch, refuse_finished

if TYPE_CHECKING:
    from cloudrec.launch.base import RunStatus
    from cloudrec.launch.folder import RunFolder


def next_launch(run: RunFolder) -> int:
    """Return the launch that a submit would be: the one under way where a process died during it.

    Raises:
        UsageError: the run has finished.
    """
    events = run.ledger.read()
    refuse_finished(run.name, events)
    last = last_launch(events)
    own = {event.event for event in events if event.launch == last}
    begun = "submitted" in own and not own & {"started", "failed", "interrupted"}
    return last if begun else last + 1


def refuse_alive(run: RunFolder, status: RunStatus) -> None:
    """Refuse to launch what is at work; UsageError."""
    if not status.state.is_final:
        raise UsageError(
            f"the run {run.name!r} is {status.state}",
            remedy=f"watch it with `cloudrec logs {run.name} --follow`, or stop it first",
        )


def refuse_over(run: RunFolder, status: RunStatus) -> None:
    """Refuse to stop what has ended; UsageError."""
    if status.state.is_final:
        raise UsageError(
            f"the run {run.name!r} is not running: it is {status.state}",
            remedy="`cloudrec status` tells the state of every run",
        )
