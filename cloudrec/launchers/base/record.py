"""Records the progress of a run on other machines in its ledger: each start of all ranks, its state, its end.

Several processes may watch a run at the same time, or none for an hour. So each event is recorded once, with
the time at which it happened, by the process that sees it first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.home import locked
from cloudrec.launchers.base import results
from cloudrec.launchers.base.ledger import RunState, state_after
from cloudrec.launchers.base.protocol import RunStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from cloudrec.launchers.base.ledger import LedgerEvent
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec

_LOCK_S = 10.0
LOST, PREEMPTED, MOVED = "pod_lost", "preempted", "moved"


def writing(run: RunFolder) -> AbstractContextManager[None]:
    """Return the lock under which a process compares the ledger with what it saw, and appends to it."""
    return locked(run.path / "watch.lock", what=f"the ledger of run {run.name!r}", wait_s=_LOCK_S)


def note_starts(run: RunFolder, spec: RunSpec, events: Sequence[LedgerEvent]) -> None:
    """Record each start of all ranks that the pods have written to the store since the last call."""
    restarts = [event for event in events if event.event == "restarting" and "lead" in event.details]
    newest = max((int(event.details["lead"]) for event in events if "lead" in event.details), default=0)
    for lead in results.leads(spec, after=newest):
        again = any(event.launch == lead.launch and event.event == "ranks_started" for event in events)
        attempt = sum(event.launch == lead.launch for event in restarts) + 1
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
        restarts = [event for event in events if event.event == "restarting" and "lead" in event.details]


def note_state(
    run: RunFolder, events: Sequence[LedgerEvent], status: RunStatus, launch: int, **details: object
) -> None:
    """Record when a launch first trains, and its end."""
    own = [event.event for event in events if event.launch == launch]
    event_name = status.state.lower()
    if status.state is RunState.RUNNING and not {"stop_requested", event_name} & set(own):
        run.ledger.append("running", launch=launch, attempt=status.attempt)
    elif status.state.is_final and event_name not in own:
        run.ledger.append(event_name, launch=launch, cause=status.cause, attempt=status.attempt, **details)


def note_place(run: RunFolder, events: Sequence[LedgerEvent], launch: int, cluster: str) -> None:
    """Record the cluster that has a run of several clusters, if it is another one than before.

    Each launch begins in the cluster of the run's spec.
    """
    if (place_after(events, launch) or run.spec().cluster) != cluster:
        run.ledger.append(MOVED, launch=launch, cluster=cluster)


def place_after(events: Sequence[LedgerEvent], launch: int) -> str:
    """Return the cluster to which a launch has moved last; empty before its first move."""
    places = [
        event.details.get("cluster") for event in events if (event.event, event.launch) == (MOVED, launch)
    ]
    return str(places[-1]) if places else ""


def attempts(events: Sequence[LedgerEvent], launch: int) -> int:
    """Return how often all ranks were started again in a launch."""
    return sum(event.event == "restarting" and event.launch == launch for event in events)


def preemptions(events: Sequence[LedgerEvent]) -> int:
    """Return how often a machine of the run was preempted, over all its launches."""
    return sum(event.event == PREEMPTED for event in events)


def final_status(events: Sequence[LedgerEvent], launch: int) -> RunStatus | None:
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
    """Return why the ranks were started again: a lost pod, or else the cause in the leader's ledger."""
    # The cause of a start lies between the start before it and this one.
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
