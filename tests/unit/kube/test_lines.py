"""One rank's lines are found without asking every pod."""

from __future__ import annotations

import pytest

from cloudrec.launch._kube.lines import _Mark
from cloudrec.launch._kube.seeking import _numbers, as_host


@pytest.mark.parametrize(("position", "number"), [(0, 0), (1, 1), (2, 10), (3, 11), (4, 2)])
def test_ranks_go_by_the_pods_names_as_text_as_their_rendezvous_sorts_them(
    position: int, number: int
) -> None:
    assert _numbers(12)[position] == number
    assert _numbers(12) == [int(host[4:]) for host in sorted((f"run-{n}" for n in range(12)), key=as_host)]


def test_a_log_that_is_read_again_gives_each_line_once_even_where_many_have_one_time() -> None:
    lines = ["t1 a", "t1 b", "t2 c", "t2 d", "t2 e"]
    mark = _Mark()
    told: list[str] = []
    for there in (lines[:3], lines[2:4], lines[2:]):  # a server gives what is not older than a time
        before = mark.begin()
        for line in there:
            moment, _, text = line.partition(" ")
            if before.passes(moment):
                mark.note(moment)
                told.append(text)
    assert told == ["a", "b", "c", "d", "e"]
