"""How a run ended, judged from what its processes left behind. Pure functions: no file, no process."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.launch.ledger import RunState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.launch.ledger import Event

# The trainer's exit codes, as its own documentation has them.
STOPPED = 75
BAD_CONFIG = 64
BAD_DATA = 65
_TERMINATED = (-signal.SIGTERM, 128 + signal.SIGTERM)  # the code of who was told to end, by whomever
_HOPELESS = {BAD_CONFIG: "bad configuration", BAD_DATA: "bad data"}


@dataclass(frozen=True, kw_only=True)
class RankExit:
    """How one rank's process ended; a negative exit code is the signal that killed it."""

    rank: int
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The final state of one launch.

    Args:
        state: SUCCEEDED, FAILED or INTERRUPTED.
        cause: why, for a person to read; None when nothing went wrong.
        exit_codes: how each rank of the last attempt ended, where it is known.
    """

    state: RunState
    cause: str | None = None
    exit_codes: Mapping[int, int] = field(default_factory=dict)


def exits_of(events: Sequence[Event], *, launch: int, attempt: int) -> list[RankExit]:
    """Return the exits of one attempt's ranks, first to end first."""
    return [
        RankExit(rank=int(event.details["rank"]), exit_code=int(event.details["exit_code"]))
        for event in events
        if event.event == "rank_ended" and event.launch == launch and event.details.get("attempt") == attempt
    ]


def last_attempt(events: Sequence[Event], *, launch: int) -> int:
    """Return the number of the newest attempt of a launch, counted from 0."""
    attempts = [
        int(event.details.get("attempt", 0))
        for event in events
        if event.launch == launch and event.event in ("rank_started", "rank_ended")
    ]
    return max(attempts, default=0)


def final_code(exits: Sequence[RankExit], *, world_size: int) -> int | None:
    """Return the exit code after which another attempt is of no use, or None when one is.

    A configuration or data that one rank refuses will be refused again. A stop counts only when every
    rank has ended by it: a rank that outlives a crashed one is told to stop by the elastic agent too.
    """
    hopeless = [exit_.exit_code for exit_ in exits if exit_.exit_code in _HOPELESS]
    if hopeless:
        return hopeless[0]
    return STOPPED if have_stopped(exits, world_size=world_size) else None


def have_stopped(exits: Sequence[RankExit], *, world_size: int) -> bool:
    """Tell whether all ranks have ended by a stop, which all had agreed on.

    Once the first has, the elastic agent ends the others by a SIGTERM, which may meet one on its way out,
    when nothing in it listens any more.

    Args:
        exits: first to end first.
        world_size: how many ranks there are.
    """
    codes = [exit_.exit_code for exit_ in exits]
    return len(codes) >= world_size and codes[:1] == [STOPPED] and {STOPPED, *_TERMINATED}.issuperset(codes)


def final_code_of_launch(events: Sequence[Event], *, launch: int, world_size: int) -> int | None:
    """Return the exit code that makes further attempts of a launch useless, in whichever attempt it came."""
    attempts = range(last_attempt(events, launch=launch) + 1)
    codes = (
        final_code(exits_of(events, launch=launch, attempt=attempt), world_size=world_size)
        for attempt in attempts
    )
    return next((code for code in codes if code is not None), None)


def culprit(exits: Sequence[RankExit]) -> RankExit | None:
    """Return the rank that began it: one that refused its input, or else the first one to fail."""
    harmless = (0, STOPPED, *_TERMINATED) if exits and exits[0].exit_code == STOPPED else (0, STOPPED)
    failed = [exit_ for exit_ in exits if exit_.exit_code not in harmless]
    hopeless = [exit_ for exit_ in failed if exit_.exit_code in _HOPELESS]
    return next(iter(hopeless or failed), None)


def describe(exit_: RankExit, *, error: str | None) -> str:
    """Say in words how a rank ended.

    Args:
        exit_: the rank and its exit code.
        error: the last error that it printed, if it printed one.
    """
    code = exit_.exit_code
    if code < 0:
        name = _signal_name(-code)
        guess = " (out of memory, or killed by hand)" if name == "SIGKILL" else ""
        how = f"was killed by {name}{guess}"
    else:
        meaning = f" ({_HOPELESS[code]})" if code in _HOPELESS else ""
        how = f"ended with exit code {code}{meaning}"
    return f"rank {exit_.rank} {how}" + (f": {error}" if error else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known once the elastic agent has ended.

    Args:
        agent_code: its exit code; negative when a signal killed it.
        exits: how the ranks of the last attempt ended, first to end first.
        attempt: the number of that attempt, counted from 0.
        max_restarts: how many restarts were allowed.
        world_size: how many ranks there are.
        stopping: whether the supervisor was told to end the run.
        requested: whether that was a `stop`, rather than a signal from elsewhere.
        killed_after_s: the grace that ran out, if it did.
        finished: whether the trainer's summary says that it has finished.
        checkpoint: step of the newest committed checkpoint.
        error: the last error that the culprit printed.
    """

    agent_code: int
    exits: Sequence[RankExit]
    attempt: int
    max_restarts: int
    world_size: int
    stopping: bool
    requested: bool
    killed_after_s: float | None
    finished: bool
    checkpoint: int | None
    error: str | None


def judge(evidence: Evidence) -> Outcome:
    """Tell how a launch ended."""
    codes = {exit_.rank: exit_.exit_code for exit_ in evidence.exits}
    state, cause = _judge(evidence)
    return Outcome(state=state, cause=cause, exit_codes=codes)


def _judge(evidence: Evidence) -> tuple[RunState, str | None]:
    code = final_code(evidence.exits, world_size=evidence.world_size)
    if evidence.agent_code == 0:
        return _all_ended_well(evidence)
    stopped = evidence.stopping or code == STOPPED or evidence.agent_code in _TERMINATED
    if code not in _HOPELESS and stopped:
        return _stopped(evidence, code)
    return RunState.FAILED, _why_it_failed(evidence, code)


def _all_ended_well(evidence: Evidence) -> tuple[RunState, str | None]:
    if evidence.finished:
        return RunState.SUCCEEDED, None
    return (
        RunState.FAILED,
        'every rank ended with exit code 0, but none left a summary.json whose status is "finished"',
    )


def _stopped(evidence: Evidence, code: int | None) -> tuple[RunState, str | None]:
    who = "stopped on request" if evidence.requested else "stopped by a signal from outside"
    at = _checkpoint_note(evidence.checkpoint)
    if code == STOPPED:
        return RunState.INTERRUPTED, f"{who}; {at}"
    if evidence.killed_after_s is not None:
        return (
            RunState.INTERRUPTED,
            f"{who}, but killed when it had not ended within {evidence.killed_after_s:g} s; {at}",
        )
    if not evidence.exits:
        return RunState.INTERRUPTED, f"{who} before the trainer had started; {at}"
    first = culprit(evidence.exits)
    how = f" ({describe(first, error=evidence.error)})" if first else ""
    return RunState.INTERRUPTED, f"{who}, without a checkpoint of its own{how}; {at}"


def _checkpoint_note(step: int | None) -> str:
    return "no checkpoint is committed" if step is None else f"the newest checkpoint is at step {step}"


def _why_it_failed(evidence: Evidence, code: int | None) -> str:
    first = culprit(evidence.exits)
    if first is None and evidence.agent_code < 0:
        return f"the elastic agent was killed by {_signal_name(-evidence.agent_code)}"
    if first is None:
        when = "after a worker was killed" if evidence.exits else "before the trainer had started"
        return f"the elastic agent ended with exit code {evidence.agent_code} {when}: see agent.log"
    words = describe(first, error=evidence.error)
    if code in _HOPELESS or evidence.attempt == 0:
        return words
    restarts = f"{evidence.attempt} restart{'s' if evidence.attempt != 1 else ''}"
    return f"{words} (after {restarts}; the limit is {evidence.max_restarts})"
