"""What is written into a run's ledger of how it is elsewhere: each start of all ranks, its state, its end.

Several processes may look at once, and none may look for an hour: each thing is told once, at the time at
which it happened, by whoever sees it first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.home import locked
from cloudrec.launch._remote import results
from cloudrec.launch.base import RunStatus
from cloudrec.launch.ledger import RunState, state_after

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.ledger import Event
    from cloudrec.launch.runspec import RunSpec

_LOCK_S = 10.0
LOST, PREEMPTED = "pod_lost", "preempted"


def writing(run: RunFolder) -> AbstractContextManager[None]:
    """Hold the run's ledger while what was seen is compared with it."""
    return locked(run.path / "watch.lock", what=f"the ledger of run {run.name!r}", wait_s=_LOCK_S)


def note_starts(run: RunFolder, spec: RunSpec, events: Sequence[Event]) -> None:
    """Tell of each time that all ranks were started again, as the pods have written it down in the store."""
    told = [event for event in events if event.event == "restarting" and "lead" in event.details]
    newest = max((int(event.details["lead"]) for event in events if "lead" in event.details), default=0)
    for lead in results.leads(spec, after=newest):
        again = any(event.launch == lead.launch and event.event == "ranks_started" for event in events)
        attempt = sum(event.launch == lead.launch for event in told) + 1
        if not again:
            run.ledger.append("ranks_started", launch=lead.launch, lead=lead.number, time=lead.time)
        else:
            run.ledger.append(
                "restarting",
                launch=lead.launch,
                attempt=attempt,
                cause=_cause_of(lead, spec, run),
                lead=lead.number,
                time=lead.time,
            )
        events = run.ledger.read()
        told = [event for event in events if event.event == "restarting" and "lead" in event.details]


def note_state(
    run: RunFolder, events: Sequence[Event], status: RunStatus, launch: int, **details: object
) -> None:
    """Tell of the first time at work in a launch, and of its end."""
    own = [event.event for event in events if event.launch == launch]
    word = status.state.lower()
    if status.state is RunState.RUNNING and not {"stop_requested", word} & set(own):
        run.ledger.append("running", launch=launch, attempt=status.attempt)
    elif status.state.is_final and word not in own:
        run.ledger.append(word, launch=launch, cause=status.cause, attempt=status.attempt, **details)


def attempts(events: Sequence[Event], launch: int) -> int:
    """Return how often all ranks were started again in a launch."""
    return sum(event.event == "restarting" and event.launch == launch for event in events)


def preemptions(events: Sequence[Event]) -> int:
    """Return how often a machine was taken from the run, over all its launches."""
    return sum(event.event == PREEMPTED for event in events)


def final_status(events: Sequence[Event], launch: int) -> RunStatus | None:
    """Return the end of a launch, if it was written down."""
    own = [event for event in events if event.launch == launch]
    if not own or not state_after(own).is_final:
        return None
    state = state_after(own)
    causes = [event.details.get("cause") for event in own if event.event == state.lower()]
    return RunStatus(
        state=state,
        cause=causes[-1] if causes else None,
        attempt=attempts(events, launch),
        preemptions=preemptions(events),
    )


def _cause_of(lead: results.Lead, spec: RunSpec, run: RunFolder) -> str:
    """Return why the ranks were started again: a pod that was lost, or what the leader says."""
    before = [event for event in run.ledger.read() if event.launch == lead.launch and event.time <= lead.time]
    starts = [event.time for event in before if "lead" in event.details]
    since = max(starts, default=0.0)
    lost = [event for event in before if event.event in (LOST, PREEMPTED) and event.time > since]
    own = [event for event in lost if event.event == PREEMPTED] or lost
    if own:
        return f"pod {own[0].details.get('pod')}: {own[0].details.get('cause')}"
    try:
        return results.restart_cause(spec, lead) or "its ranks were started again"
    except CloudrecError:
        return "its ranks were started again"
