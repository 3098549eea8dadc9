"""The log lines of one rank, read without a request to every pod."""

from __future__ import annotations

import pytest

from cloudrec.launchers.kubernetes.watch.lines import _Mark
from cloudrec.launchers.kubernetes.watch.seeking import _numbers, as_host


@pytest.mark.parametrize(("position", "number"), [(0, 0), (1, 1), (2, 10), (3, 11), (4, 2)])
def test_ranks_follow_the_pod_names_sorted_as_text(position: int, number: int) -> None:
    assert _numbers(12)[position] == number
    assert _numbers(12) == [int(host[4:]) for host in sorted((f"run-{n}" for n in range(12)), key=as_host)]


def test_a_log_read_again_yields_each_line_once_despite_equal_timestamps() -> None:
    lines = ["t1 a", "t1 b", "t2 c", "t2 d", "t2 e"]
    mark = _Mark()
    told: list[str] = []
    for there in (lines[:3], lines[2:4], lines[2:]):  # a server returns lines from a given time on
        before = mark.begin()
        for line in there:
            moment, _, text = line.partition(" ")
            if before.passes(moment):
                mark.note(moment)
                told.append(text)
    assert told == ["a", "b", "c", "d", "e"]
