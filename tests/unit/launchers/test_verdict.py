"""The result of a launch, derived from the exits of its processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudrec.launchers.base.ledger import LedgerEvent, RunState
from cloudrec.launchers.base.verdict import (
    Evidence,
    RankExit,
    culprit,
    exits_of,
    final_code,
    final_code_of_launch,
    judge,
    last_attempt,
)


def _exits(*codes: int) -> list[RankExit]:
    return [RankExit(rank=rank, exit_code=code) for rank, code in enumerate(codes)]


EVIDENCE = Evidence(
    agent_code=1,
    exits=(),
    attempt=0,
    max_restarts=3,
    world_size=2,
    stopping=False,
    requested=False,
    killed_after_s=None,
    finished=False,
    checkpoint=None,
    error=None,
)


@pytest.mark.parametrize(
    ("codes", "final"),
    [
        ((), None),
        ((1, 75), None),  # stopped by the agent because another rank had crashed
        ((75,), None),  # the other rank has not ended yet
        ((75, 75), 75),
        ((75, -15), 75),  # the agent's SIGTERM reached it during shutdown
        ((75, 143), 75),
        ((-15, 75), None),  # no stop had been agreed
        ((75, -9), None),
        ((75, 64), 64),
        ((65,), 65),
        ((-9, 1), None),
        ((0, 0), None),
    ],
)
def test_attempts_end_only_on_a_fatal_error_or_when_every_rank_has_stopped(
    codes: tuple[int, ...], final: int | None
) -> None:
    assert final_code(_exits(*codes), world_size=2) == final


def test_a_rank_ended_after_another_stopped_is_not_the_cause() -> None:
    assert culprit(_exits(75, -15)) is None
    assert culprit(_exits(75, -15, 1)) == RankExit(rank=2, exit_code=1)
    assert culprit(_exits(-15, 75)) == RankExit(rank=0, exit_code=-15)


def _ended(launch: int, attempt: int, rank: int, code: int) -> LedgerEvent:
    details = {"attempt": attempt, "rank": rank, "exit_code": code}
    return LedgerEvent(time=0.0, event="rank_ended", launch=launch, details=details)


def test_a_fatal_error_is_final_even_after_a_new_attempt_has_started() -> None:
    begun = LedgerEvent(time=0.0, event="rank_started", launch=2, details={"attempt": 2, "rank": 0})
    events = [_ended(1, 0, 0, 1), _ended(2, 0, 0, 64), begun]
    assert final_code_of_launch(events, launch=2, world_size=2) == 64
    assert final_code_of_launch(events, launch=1, world_size=2) is None
    assert last_attempt(events, launch=2) == 2
    assert exits_of(events, launch=2, attempt=0) == [RankExit(rank=0, exit_code=64)]


def test_the_first_failed_rank_is_named_and_not_a_stopped_peer() -> None:
    exits = [RankExit(rank=1, exit_code=75), RankExit(rank=0, exit_code=-11)]
    outcome = judge(replace(EVIDENCE, exits=exits, error="boom"))
    assert outcome.state is RunState.FAILED
    assert outcome.cause == "rank 0 was killed by SIGSEGV: boom"
    assert outcome.exit_codes == {0: -11, 1: 75}


@pytest.mark.parametrize(
    ("changes", "state", "cause"),
    [
        ({"agent_code": 0, "finished": True, "exits": _exits(0, 0)}, RunState.SUCCEEDED, None),
        (
            {"agent_code": 0, "exits": _exits(0, 0)},
            RunState.FAILED,
            'every rank ended with exit code 0, but none left a summary.json whose status is "finished"',
        ),
        (
            {"agent_code": 0, "finished": True, "exits": _exits(0, 0), "stopping": True, "requested": True},
            RunState.SUCCEEDED,  # it had finished before the stop reached it
            None,
        ),
        (
            {"exits": _exits(75, 75), "stopping": True, "requested": True, "checkpoint": 40},
            RunState.INTERRUPTED,
            "stopped on request; the newest checkpoint is at step 40",
        ),
        (
            {"exits": _exits(75, 75), "checkpoint": 40},
            RunState.INTERRUPTED,
            "stopped by a signal from outside; the newest checkpoint is at step 40",
        ),
        (
            {"stopping": True, "requested": True},
            RunState.INTERRUPTED,
            "stopped on request before the trainer had started; no checkpoint is committed",
        ),
        (
            {"agent_code": -9, "stopping": True, "requested": True, "killed_after_s": 15.0, "checkpoint": 7},
            RunState.INTERRUPTED,
            (
                "stopped on request, but killed when it had not ended within 15 s; "
                "the newest checkpoint is at step 7"
            ),
        ),
        (
            {"exits": _exits(75, 1), "stopping": True, "requested": True, "error": "full"},
            RunState.INTERRUPTED,
            (
                "stopped on request, without its own checkpoint (rank 1 ended with exit code 1: full); "
                "no checkpoint is committed"
            ),
        ),
        (
            {"exits": _exits(64, 75), "stopping": True, "requested": True, "error": "batch_size is 0"},
            RunState.FAILED,
            "rank 0 ended with exit code 64 (bad configuration): batch_size is 0",
        ),
        (
            {"exits": _exits(1), "attempt": 3},
            RunState.FAILED,
            "rank 0 ended with exit code 1 (after 3 restarts; the limit is 3)",
        ),
        (
            {"exits": _exits(-9)},
            RunState.FAILED,
            "rank 0 was killed by SIGKILL (out of memory, or killed by hand)",
        ),
        (
            {"exits": _exits(-15), "stopping": True},
            RunState.INTERRUPTED,
            (
                "stopped by a signal from outside, without its own checkpoint "
                "(rank 0 was killed by SIGTERM); no checkpoint is committed"
            ),
        ),
        (
            {"agent_code": -15},
            RunState.INTERRUPTED,
            "stopped by a signal from outside before the trainer had started; no checkpoint is committed",
        ),
        ({"agent_code": -9}, RunState.FAILED, "the elastic agent was killed by SIGKILL"),
        (
            {"agent_code": 1},
            RunState.FAILED,
            "the elastic agent ended with exit code 1 before the trainer had started: see agent.log",
        ),
        ({"exits": _exits(-99)}, RunState.FAILED, "rank 0 was killed by signal 99"),
    ],
)
def test_a_launch_has_one_final_state_and_a_cause(
    changes: dict[str, object], state: RunState, cause: str | None
) -> None:
    outcome = judge(replace(EVIDENCE, **changes))  # type: ignore[arg-type] # any field of Evidence
    assert (outcome.state, outcome.cause) == (state, cause)
