"""The rank that blocks the others, found in the flight records of NCCL and torch."""

from __future__ import annotations

import os
import pickle
from typing import Any

from cloudrec.kubernetes.health.flight_recorder import from_log, read_dump, verdict


def _dump(*numbers: int, done: int) -> bytes:
    entries: list[dict[str, Any]] = [
        {
            "collective_seq_id": number,
            "process_group": ("0", "default_pg"),
            "profiling_name": "nccl:all_to_all" if number % 2 else "nccl:all_reduce",
            "state": "completed" if number <= done else "started",
            "is_p2p": False,
        }
        for number in numbers
    ]
    return pickle.dumps({"version": "2.10", "entries": entries})


def test_the_rank_with_the_oldest_last_collective_is_named() -> None:
    positions = [*read_dump(0, _dump(1, 2, 3, done=2)), *read_dump(1, _dump(1, done=1))]
    positions += read_dump(2, _dump(1, 2, 3, done=2))
    assert verdict(positions) == (
        "rank 1 held up the others: the last collective it has finished is all_to_all #1 of group "
        "default_pg, while others are at all_to_all #3"
    )


def test_no_rank_is_named_if_all_have_the_same_last_collective() -> None:
    assert verdict([*read_dump(0, _dump(1, done=1)), *read_dump(1, _dump(1, done=1))]) == ""


class _Malice:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.putenv, ("CLOUDREC_TEST_MALICE", "1")


def test_a_pickle_dump_that_would_execute_code_is_not_read() -> None:
    assert read_dump(0, pickle.dumps({"entries": [_Malice()]})) == []
    assert read_dump(0, b"no pickle") == []


def test_a_watchdog_message_shows_the_pending_collective() -> None:
    caught = (
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, "
        "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds"
    )
    failed = "[Rank 3] failure detected: last enqueued NCCL work: 43, last completed NCCL work: 41."
    assert from_log([caught, failed], rank=3) == (
        "rank 3 waited 600 s in vain for ALLREDUCE #42; the last collective that it began is #43, the last "
        "that ended #41"
    )
    assert from_log(["all is well"], rank=0) == ""
