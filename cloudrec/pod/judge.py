"""What a pod makes of how its ranks and torchrun ended. Pure functions: no file, no process.

A rank that crashed and one that only lost the others both end badly; what it printed tells them apart.
Crashes count against the run's restarts. Lost peers do not: some other pod crashed, or its machine was taken.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.launch.verdict import BAD_CONFIG, BAD_DATA, RankExit, describe, exits_of
from cloudrec.pod.codes import AGAIN, CRASHED, FINAL, FINISHED, SPENT, UNFIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.launch.ledger import Event

LOST = (  # how the trainer, torch and nccl tell that another rank has gone
    "lost contact with another rank",
    "the ranks did not find one another",
    "another rank found",
    "ncclremoteerror",
)
_TOLD_TO_END = (-signal.SIGTERM, 128 + signal.SIGTERM)
_SHORT_S = 60.0
_FRUITLESS = 10  # attempts in a row that lost their peers before they had worked for a minute


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a pod ends.

    Args:
        code: its exit code.
        cause: why, for a person to read; empty when nothing went wrong.
    """

    code: int
    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One start of this pod's ranks.

    Args:
        number: its place in this launch of this pod, from 0.
        started: when its first rank began; seconds since the epoch.
        ended: when its newest end of a rank was; 0 when none has ended.
        ranks: the ranks that were started.
        exits: how ranks ended, first to end first.
    """

    number: int
    started: float
    ended: float
    ranks: tuple[int, ...]
    exits: tuple[RankExit, ...]

    @property
    def is_over(self) -> bool:
        """Whether a rank has ended that should not have: torchrun ends the others."""
        return any(each.exit_code != FINISHED for each in self.exits)

    @property
    def is_done(self) -> bool:
        """Whether every rank has finished its work."""
        finished = {each.rank for each in self.exits if each.exit_code == FINISHED}
        return bool(self.ranks) and finished == set(self.ranks)


def attempts_of(events: Sequence[Event], *, launch: int) -> list[Attempt]:
    """Return the attempts of a launch, oldest first."""
    starts: dict[int, list[Event]] = {}
    for event in events:
        if event.event == "rank_started" and event.launch == launch:
            starts.setdefault(int(event.details["attempt"]), []).append(event)
    return [
        Attempt(
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


def crash_in(attempt: Attempt, error_of: Callable[[int], str | None]) -> RankExit | None:
    """Return the rank whose own fault an attempt's end is, or None.

    Args:
        attempt: the attempt.
        error_of: the last error that a rank printed.
    """
    for exit_ in attempt.exits:
        if exit_.exit_code in (FINISHED, AGAIN, *_TOLD_TO_END):
            continue
        error = (error_of(exit_.rank) or "").lower()
        if exit_.exit_code in FINAL or not any(sign in error for sign in LOST):
            return exit_
    return None


def final_ending(attempts: Sequence[Attempt], errors: Mapping[int, str]) -> Ending | None:
    """Return how the pod must end because a rank refuses what it was given; None when none does.

    Args:
        attempts: this launch's.
        errors: what the culprit of an attempt printed, by the attempt's number.
    """
    words = {BAD_CONFIG: "bad configuration", BAD_DATA: "bad data", UNFIT: "unfit"}
    for attempt in attempts:
        for exit_ in attempt.exits:
            if exit_.exit_code in FINAL:
                error = errors.get(attempt.number)
                told = f": {error}" if error else ""
                return Ending(
                    code=exit_.exit_code, cause=f"{words[exit_.exit_code]}: rank {exit_.rank}{told}"
                )
    return None


def spent_ending(
    attempts: Sequence[Attempt],
    crashes: Mapping[int, RankExit],
    errors: Mapping[int, str],
    *,
    max_restarts: int,
) -> Ending | None:
    """Return how the pod must end because another attempt is not worth it; None when it is.

    Args:
        attempts: this launch's.
        crashes: the culprits of those that crashed, by the attempt's number.
        errors: what they printed.
        max_restarts: how many crashes are forgiven.
    """
    if len(crashes) > max_restarts:
        number, last = max(crashes.items())
        again = f" ({len(crashes)} crashes; {max_restarts} are forgiven)" if max_restarts else ""
        return Ending(code=SPENT, cause=describe(last, error=errors.get(number) or None) + again)
    tail = attempts[-_FRUITLESS:]
    if len(tail) == _FRUITLESS and all(_was_fruitless(each, crashes) for each in tail):
        return Ending(
            code=SPENT,
            cause=f"{_FRUITLESS} attempts in a row lost the other ranks within {_SHORT_S:g} s of their start",
        )
    return None


def _was_fruitless(attempt: Attempt, crashes: Mapping[int, RankExit]) -> bool:
    short = attempt.ended - attempt.started < _SHORT_S
    return attempt.is_over and short and attempt.number not in crashes


def _how_stopped(last: Attempt | None) -> str:
    if last is None:
        return "before its ranks had started"
    answered = {each.rank for each in last.exits if each.exit_code == AGAIN} == set(last.ranks)
    return "and stopped by all its ranks" if answered else "and stopped before its ranks had answered"


def ending_after(attempts: Sequence[Attempt], torchrun_code: int, *, stopped: bool) -> Ending:
    """Return how the pod ends once torchrun has ended by itself, or by a stop.

    Args:
        attempts: this launch's.
        torchrun_code: its exit code; negative when a signal killed it.
        stopped: whether this pod was told to end.
    """
    last = attempts[-1] if attempts else None
    if torchrun_code == 0 or (last and last.is_done):
        return Ending(code=FINISHED)
    if stopped:
        return Ending(code=AGAIN, cause=f"told to stop, {_how_stopped(last)}")
    if torchrun_code == AGAIN:
        return Ending(code=AGAIN, cause="the rendezvous with the other pods was lost, or did not come about")
    if torchrun_code == 2:  # noqa: PLR2004 - argparse's
        return Ending(code=BAD_CONFIG, cause="torchrun refused its flags: see agent.log")
    how = f"signal {-torchrun_code}" if torchrun_code < 0 else f"exit code {torchrun_code}"
    return Ending(code=CRASHED, cause=f"torchrun ended with {how}: see agent.log")
