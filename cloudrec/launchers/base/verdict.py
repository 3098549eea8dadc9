"""Decides how a run ended, from its ledger and exit codes. Pure functions: no file, no process."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.launchers.base.ledger import RunState
from cloudrec_contract.end_event import EndEvent
from cloudrec_contract.exit_codes import BAD_CONFIG, BAD_DATA, PEER_LOST, STOPPED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.launchers.base.ledger import LedgerEvent

_TERMINATED = (-signal.SIGTERM, 128 + signal.SIGTERM)  # the code of a process that SIGTERM ended
_HOPELESS = {BAD_CONFIG: "bad configuration", BAD_DATA: "bad data"}
_SCRIPTS_NOTE = "a resume starts the script with what it has written to its folder of checkpoints"
_MEANINGS = {**_HOPELESS, PEER_LOST: "another rank was lost"}


@dataclass(frozen=True, kw_only=True)
class RankExit:
    """How one rank's process ended.

    Args:
        rank: the rank.
        exit_code: its exit code; the negative number of the signal that killed it.
        end: the event that it wrote at its end; None if it was killed, or is a program that writes none.
    """

    rank: int
    exit_code: int
    end: EndEvent | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The final state of one launch.

    Args:
        state: SUCCEEDED, FAILED or INTERRUPTED.
        cause: why, for a person to read; None if the run succeeded.
        exit_codes: exit codes of the last attempt, by rank; ranks whose code is unknown are missing.
    """

    state: RunState
    cause: str | None = None
    exit_codes: Mapping[int, int] = field(default_factory=dict)


def exits_of(events: Sequence[LedgerEvent], *, launch: int, attempt: int) -> list[RankExit]:
    """Return the exits of one attempt's ranks, in the order in which they ended."""
    return [
        RankExit(
            rank=int(event.details["rank"]),
            exit_code=int(event.details["exit_code"]),
            end=EndEvent.of(event.details.get("end")),
        )
        for event in events
        if event.event == "rank_ended" and event.launch == launch and event.details.get("attempt") == attempt
        # A damaged line may lack them.
        if event.details.keys() >= {"rank", "exit_code"}
    ]


def last_attempt(events: Sequence[LedgerEvent], *, launch: int) -> int:
    """Return the number of the newest attempt of a launch, counted from 0."""
    attempts = [
        int(event.details.get("attempt", 0))
        for event in events
        if event.launch == launch and event.event in ("rank_started", "rank_ended")
    ]
    return max(attempts, default=0)


def final_code(exits: Sequence[RankExit], *, world_size: int) -> int | None:
    """Return the exit code after which another attempt is useless, or None.

    A configuration or data that one rank refuses will be refused again. A stop counts only if every
    rank has ended by it: the elastic agent also stops the ranks that outlive a crashed one.
    """
    hopeless = [exit_.exit_code for exit_ in exits if exit_.exit_code in _HOPELESS]
    if hopeless:
        return hopeless[0]
    return STOPPED if have_stopped(exits, world_size=world_size) else None


def have_stopped(exits: Sequence[RankExit], *, world_size: int) -> bool:
    """Return whether all ranks have ended by a stop that they agreed on.

    Args:
        exits: the exits in the order in which the ranks ended.
        world_size: the number of ranks.
    """
    # After the first exit, the elastic agent sends SIGTERM to the others. A rank that has committed and is
    # exiting handles no signals any more, so SIGTERM counts as a stop after a first STOPPED.
    codes = [exit_.exit_code for exit_ in exits]
    return len(codes) >= world_size and codes[:1] == [STOPPED] and {STOPPED, *_TERMINATED}.issuperset(codes)


def final_code_of_launch(events: Sequence[LedgerEvent], *, launch: int, world_size: int) -> int | None:
    """Return the first exit code of a launch, over all its attempts, after which another one is useless."""
    attempts = range(last_attempt(events, launch=launch) + 1)
    codes = (
        final_code(exits_of(events, launch=launch, attempt=attempt), world_size=world_size)
        for attempt in attempts
    )
    return next((code for code in codes if code is not None), None)


def culprit(exits: Sequence[RankExit]) -> RankExit | None:
    """Return the exit that caused the others: a rank that refused its input, else the first that failed."""
    # Ranks that lost a peer also fail, but the cause is the rank that crashed.
    harmless = (0, STOPPED, *_TERMINATED) if exits and exits[0].exit_code == STOPPED else (0, STOPPED)
    failed = [exit_ for exit_ in exits if exit_.exit_code not in harmless]
    hopeless = [exit_ for exit_ in failed if exit_.exit_code in _HOPELESS]
    crashed = [exit_ for exit_ in failed if exit_.exit_code != PEER_LOST]
    return next(iter(hopeless or crashed or failed), None)


def describe(exit_: RankExit, *, error: str | None) -> str:
    """Return a sentence about how a rank ended.

    Args:
        exit_: the rank and its exit code.
        error: the last error that it printed; None if it printed none.
    """
    code = exit_.exit_code
    if code < 0:
        name = _signal_name(-code)
        guess = " (out of memory, or killed by hand)" if name == "SIGKILL" else ""
        how = f"was killed by {name}{guess}"
    else:
        meaning = f" ({_MEANINGS[code]})" if code in _MEANINGS else ""
        how = f"ended with exit code {code}{meaning}"
    return f"rank {exit_.rank} {how}" + (f": {error}" if error else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The facts about a launch after its elastic agent has ended.

    Args:
        agent_code: the agent's exit code; negative if a signal killed it.
        exits: exits of the last attempt, in the order in which the ranks ended.
        attempt: the number of that attempt, counted from 0.
        max_restarts: number of restarts that were allowed.
        world_size: number of ranks.
        stopping: whether the supervisor was stopping the run.
        requested: whether `stop` requested that, rather than a signal from another process.
        killed_after_s: the grace in seconds after which the run was killed; None if it was not.
        finished: whether the trainer's summary has the status "finished".
        checkpoint: step of the newest committed checkpoint; None without one.
        error: the last error that the culprit printed; None if it printed none.
        is_script: whether a user's script ran, whose checkpoints cloudrec cannot count.
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
    is_script: bool = False


def judge(evidence: Evidence) -> Outcome:
    """Return the final state of a launch, with its cause."""
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
    stop = "stopped on request" if evidence.requested else "stopped by a signal from outside"
    at = _SCRIPTS_NOTE if evidence.is_script else _checkpoint_note(evidence.checkpoint)
    if code == STOPPED:
        return RunState.INTERRUPTED, f"{stop}; {at}"
    if evidence.killed_after_s is not None:
        return (
            RunState.INTERRUPTED,
            f"{stop}, but killed when it had not ended within {evidence.killed_after_s:g} s; {at}",
        )
    if not evidence.exits:
        return RunState.INTERRUPTED, f"{stop} before the trainer had started; {at}"
    first = culprit(evidence.exits)
    how = f" ({describe(first, error=evidence.error)})" if first else ""
    without = "" if evidence.is_script else ", without its own checkpoint"
    return RunState.INTERRUPTED, f"{stop}{without}{how}; {at}"


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
