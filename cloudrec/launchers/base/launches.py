"""Numbers the launches of a run, and refuses a launch or a stop that its state does not allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import UsageError
from cloudrec.launchers.base.ledger import last_launch, refuse_finished

if TYPE_CHECKING:
    from cloudrec.launchers.base.protocol import RunStatus
    from cloudrec.launchers.base.run_folder import RunFolder


def next_launch(run: RunFolder) -> int:
    """Return the number of the launch that a submit makes.

    It is the last launch if a process died while it submitted that one, else the next number.

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
    """Raise UsageError if a run is not in a final state, and so cannot be launched."""
    if not status.state.is_final:
        raise UsageError(
            f"the run {run.name!r} is {status.state}",
            remedy=f"watch it with `cloudrec logs {run.name} --follow`, or stop it first",
        )


def refuse_over(run: RunFolder, status: RunStatus) -> None:
    """Raise UsageError if a run is in a final state, and so cannot be stopped."""
    if status.state.is_final:
        raise UsageError(
            f"the run {run.name!r} is not running: it is {status.state}",
            remedy="`cloudrec status` shows the state of every run",
        )
