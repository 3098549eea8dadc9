"""The classification of a rank's exit, and the resulting exit code of its pod."""

from __future__ import annotations

import pytest

from cloudrec.agent.exits.classify import attempts_of, crash_in, ending_after, final_ending, spent_ending
from cloudrec_contract.exit_codes import FAILED, FINISHED, PEER_LOST, RESTARTS_SPENT, STOPPED
from tests.unit.agent.support_pod import ended, started


@pytest.mark.parametrize(
    ("code", "error", "is_crash"),
    [
        (1, "the loss became NaN or infinite at step 3", True),
        (1, None, True),
        (-9, None, True),
        (-6, "terminate called", True),
        (76, None, False),
        (76, "any words at all", False),
        (1, "another rank found a NaN in my loader", True),
        (1, "lost contact with another rank", True),
        (-6, "DistBackendError: NCCL error, ncclRemoteError: a remote process exited", False),
        (75, None, False),
        (-15, None, False),
        (143, None, False),
        (0, None, False),
    ],
)
def test_a_lost_peer_is_not_a_crash_of_the_rank_itself(
    code: int, error: str | None, *, is_crash: bool
) -> None:
    (attempt,) = attempts_of([started(0), ended(0, code)], launch=1)
    assert (crash_in(attempt, lambda _rank: error) is not None) == is_crash


def test_the_first_crashed_rank_is_the_cause_and_not_its_peers() -> None:
    events = [started(0, 0), started(0, 1), ended(0, PEER_LOST, 1), ended(0, -11, 0)]
    (attempt,) = attempts_of(events, launch=1)
    culprit = crash_in(attempt, lambda _rank: None)
    assert culprit is not None
    assert (culprit.rank, culprit.exit_code) == (0, -11)


def test_events_of_another_launch_are_ignored() -> None:
    events = [started(0, launch=1), ended(0, 1, launch=1), started(0, launch=2)]
    (attempt,) = attempts_of(events, launch=2)
    assert not attempt.is_over


@pytest.mark.parametrize(("code", "word"), [(64, "bad configuration"), (65, "bad data"), (69, "unfit")])
def test_a_fatal_exit_code_of_a_rank_is_the_exit_code_of_the_pod(code: int, word: str) -> None:
    attempts = attempts_of([started(0), ended(0, code)], launch=1)
    ending = final_ending(attempts, {0: "batch_size 0"})
    assert ending is not None
    assert (ending.code, ending.cause) == (code, f"{word}: rank 0: batch_size 0")


def test_crashes_beyond_the_limit_end_the_pod_and_lost_peers_do_not_count() -> None:
    events = [each for number in range(4) for each in (started(number), ended(number, 1))]
    attempts = attempts_of(events, launch=1)
    exits = {attempt.number: attempt.exits[0] for attempt in attempts}
    errors = {3: "out of memory"}
    assert spent_ending(attempts, dict(list(exits.items())[:3]), errors, max_restarts=3) is None
    ending = spent_ending(attempts, exits, errors, max_restarts=3)
    assert ending is not None
    assert ending.code == RESTARTS_SPENT
    assert ending.cause == "rank 0 ended with exit code 1: out of memory (4 crashes; the limit is 3)"


@pytest.mark.parametrize(("worked_s", "ends"), [(5.0, True), (90.0, False)])
def test_repeated_immediate_losses_of_peers_end_the_pod(worked_s: float, *, ends: bool) -> None:
    pairs = ((started(n, time=100.0 * n), ended(n, 75, time=100.0 * n + worked_s)) for n in range(10))
    attempts = attempts_of([event for pair in pairs for event in pair], launch=1)
    assert (spent_ending(attempts, {}, {}, max_restarts=3) is not None) == ends
    assert spent_ending(attempts[1:], {}, {}, max_restarts=3) is None


@pytest.mark.parametrize(
    ("codes", "torchrun", "stopped", "code", "cause"),
    [
        ([0, 0], 0, False, FINISHED, ""),
        ([0, 0], -15, True, FINISHED, ""),
        ([0, 0], 1, False, FINISHED, ""),
        ([75, 75], 143, True, STOPPED, "stopped on request, and stopped by all its ranks"),
        ([1], -9, True, STOPPED, "stopped on request, and stopped before its ranks had answered"),
        ([], 143, True, STOPPED, "stopped on request, before its ranks had started"),
        ([75, 75], 75, False, STOPPED, "the rendezvous with the other pods was lost, or was not reached"),
        ([], 2, False, 64, "torchrun refused its flags: see agent.log"),
        ([], 1, False, FAILED, "torchrun ended with exit code 1: see agent.log"),
        ([], -9, False, FAILED, "torchrun ended with signal 9: see agent.log"),
    ],
)
def test_the_exit_code_of_a_pod_follows_from_that_of_torchrun(
    codes: list[int], torchrun: int, code: int, cause: str, *, stopped: bool
) -> None:
    events = [started(0, rank) for rank in range(2)] + [ended(0, c, rank) for rank, c in enumerate(codes)]
    ending = ending_after(attempts_of(events if codes else [], launch=1), torchrun, stopped=stopped)
    assert (ending.code, ending.cause) == (code, cause)
