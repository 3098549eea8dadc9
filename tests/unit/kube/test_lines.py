"""One rank's lines are found without asking every pod."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cloudrec.kube.client import Kube
from cloudrec.launch._kube.lines import RankLog, _Mark
from cloudrec.launch.runspec import RunSpec
from tests.unit.kube.support_objects import pod


def _log(rank: int, pods: list[dict[str, Any]]) -> RankLog:
    return RankLog(
        cast("Kube", None),  # nobody is asked
        RunSpec(name="run", nnodes=len(pods), nproc_per_node=2),
        namespace="n",
        rank=rank,
        pods=lambda: pods,
        is_over=lambda: True,
    )


@pytest.mark.parametrize(
    ("rank", "name"), [(0, "run-0"), (3, "run-1"), (4, "run-10"), (6, "run-11"), (8, "run-2")]
)
def test_ranks_go_by_the_pods_names_as_text_as_their_rendezvous_sorts_them(rank: int, name: str) -> None:
    pods = [pod(f"run-{index}") for index in range(12)]
    found = _log(rank, pods)._expected(pods)
    assert [each["metadata"]["name"] for each in found] == [name]


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
