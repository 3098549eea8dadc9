"""Decides how a pod ends, from the ends of its ranks and of torchrun. Pure functions: no file, no process.

A rank that crashed and a rank that lost its peers both fail; their exit codes distinguish them. Crashes count
against the run's restarts. Lost peers do not: another pod crashed, or its machine was preempted.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.launchers.base.verdict import RankExit, describe, exits_of
from cloudrec_contract.exit_codes import (
    BAD_CONFIG,
    BAD_DATA,
    FAILED,
    FINAL,
    FINISHED,
    PEER_LOST,
    RESTARTS_SPENT,
    STOPPED,
    UNFIT_NODE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.launchers.base.ledger import LedgerEvent

_NCCL_LOST = "ncclremoteerror"  # NCCL's name for a lost peer, in the output of its watchdog's abort
_TERMINATED = (-signal.SIGTERM, 128 + signal.SIGTERM)  # torchrun ends ranks so after another one's end
_SHORT_S = 60.0
_FRUITLESS = 10  # attempts in a row that lost their peers within `_SHORT_S`


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The end of a pod.

    Args:
        code: its exit code.
        cause: why, for a person to read; empty if nothing went wrong.
    """

    code: int
    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class PodAttempt:
    """One start of this pod's ranks.

    Args:
        number: its number in this launch of this pod, from 0.
        started: time of its first rank's start, in seconds since the epoch.
        ended: time of the newest end of a rank; 0 if none has ended.
        ranks: the ranks that were started.
        exits: the exits in the order in which the ranks ended.
    """

    number: int
    started: float
    ended: float
    ranks: tuple[int, ...]
    exits: tuple[RankExit, ...]

    @property
    def is_over(self) -> bool:
        """Whether a rank has ended with a code other than 0, after which torchrun ends the others."""
        return any(each.exit_code != FINISHED for each in self.exits)

    @property
    def is_done(self) -> bool:
        """Whether every rank has finished its work."""
        finished = {each.rank for each in self.exits if each.exit_code == FINISHED}
        return bool(self.ranks) and finished == set(self.ranks)


def attempts_of(events: Sequence[LedgerEvent], *, launch: int) -> list[PodAttempt]:
    """Return the attempts of a launch, oldest first."""
    starts: dict[int, list[LedgerEvent]] = {}
    for event in events:
        if event.event == "rank_started" and event.launch == launch:
            starts.setdefault(int(event.details["attempt"]), []).append(event)
    return [
        PodAttempt(
            number=number,
            started=min(event.time for event in begun),
            ended=max(
                (
                    event.time
                    for event in events
                    if event.event == "rank_ended"
                    and event.launch == launch
                    and event.details.get("attempt") == number
                ),
                default=0.0,
            ),
            ranks=tuple(sorted(int(event.details["rank"]) for event in begun)),
            exits=tuple(exits_of(events, launch=launch, attempt=number)),
        )
        for number, begun in sorted(starts.items())
    ]


def crash_in(attempt: PodAttempt, error_of: Callable[[int], str | None]) -> RankExit | None:
    """Return the first rank that crashed in an attempt; None if its ranks were stopped or lost peers.

    Args:
        attempt: the attempt.
        error_of: returns the last error that a rank printed.
    """
    for exit_ in attempt.exits:
        if exit_.exit_code in (FINISHED, STOPPED, PEER_LOST, *_TERMINATED):
            continue
        if not _watchdog_lost_peer(exit_, error_of):
            return exit_
    return None


def _watchdog_lost_peer(exit_: RankExit, error_of: Callable[[int], str | None]) -> bool:
    """Return whether NCCL's watchdog has aborted a rank because of a lost peer."""
    # The watchdog ends the process by SIGABRT, so the trainer cannot exit with PEER_LOST.
    return exit_.exit_code == -signal.SIGABRT and _NCCL_LOST in (error_of(exit_.rank) or "").lower()


def final_ending(attempts: Sequence[PodAttempt], errors: Mapping[int, str]) -> Ending | None:
    """Return the end of the pod if a rank refuses its configuration, data or node; else None.

    Args:
        attempts: the attempts of this launch.
        errors: the error of the rank that ended an attempt, by the attempt's number.
    """
    meanings = {BAD_CONFIG: "bad configuration", BAD_DATA: "bad data", UNFIT_NODE: "unfit"}
    for attempt in attempts:
        for exit_ in attempt.exits:
            if exit_.exit_code in FINAL:
                error = errors.get(attempt.number)
                detail = f": {error}" if error else ""
                return Ending(
                    code=exit_.exit_code, cause=f"{meanings[exit_.exit_code]}: rank {exit_.rank}{detail}"
                )
    return None


def spent_ending(
    attempts: Sequence[PodAttempt],
    crashes: Mapping[int, RankExit],
    errors: Mapping[int, str],
    *,
    max_restarts: int,
) -> Ending | None:
    """Return the end of the pod if it crashed too often, or lost its peers again and again; else None.

    Args:
        attempts: the attempts of this launch.
        crashes: the rank that crashed in an attempt, by the attempt's number.
        errors: the errors of these ranks, by the attempt's number.
        max_restarts: number of crashes after which the pod still continues.
    """
    if len(crashes) > max_restarts:
        number, last = max(crashes.items())
        limit = f" ({len(crashes)} crashes; the limit is {max_restarts})" if max_restarts else ""
        return Ending(code=RESTARTS_SPENT, cause=describe(last, error=errors.get(number) or None) + limit)
    tail = attempts[-_FRUITLESS:]
    if len(tail) == _FRUITLESS and all(_was_fruitless(each, crashes) for each in tail):
        return Ending(
            code=RESTARTS_SPENT,
            cause=f"{_FRUITLESS} attempts in a row lost the other ranks within {_SHORT_S:g} s of their start",
        )
    return None


def _was_fruitless(attempt: PodAttempt, crashes: Mapping[int, RankExit]) -> bool:
    short = attempt.ended - attempt.started < _SHORT_S
    return attempt.is_over and short and attempt.number not in crashes


def _how_stopped(last: PodAttempt | None) -> str:
    if last is None:
        return "before its ranks had started"
    answered = {each.rank for each in last.exits if each.exit_code == STOPPED} == set(last.ranks)
    return "and stopped by all its ranks" if answered else "and stopped before its ranks had answered"


def ending_after(attempts: Sequence[PodAttempt], torchrun_code: int, *, stopped: bool) -> Ending:
    """Return the end of the pod after torchrun has ended.

    Args:
        attempts: the attempts of this launch.
        torchrun_code: torchrun's exit code; negative if a signal killed it.
        stopped: whether this pod was stopped.
    """
    # torchrun may end with an error after all its ranks have finished.
    last = attempts[-1] if attempts else None
    if torchrun_code == 0 or (last and last.is_done):
        return Ending(code=FINISHED)
    if stopped:
        return Ending(code=STOPPED, cause=f"stopped on request, {_how_stopped(last)}")
    if torchrun_code == STOPPED:
        return Ending(code=STOPPED, cause="the rendezvous with the other pods was lost, or was not reached")
    if torchrun_code == 2:  # noqa: PLR2004 - argparse's exit code
        return Ending(code=BAD_CONFIG, cause="torchrun refused its flags: see agent.log")
    how = f"signal {-torchrun_code}" if torchrun_code < 0 else f"exit code {torchrun_code}"
    return Ending(code=FAILED, cause=f"torchrun ended with {how}: see agent.log")
