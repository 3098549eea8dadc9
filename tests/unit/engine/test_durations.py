"""What steps took last time, and the estimate of what is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudrec.engine.durations import Durations, left_s

NEEDS: dict[str, set[str]] = {"vpc": set(), "role": set(), "cluster": {"vpc", "role"}, "nodes": {"cluster"}}
USUAL = {"vpc": 10.0, "role": 20.0, "cluster": 600.0, "nodes": 100.0}


def test_the_estimate_is_the_longest_chain_of_steps() -> None:
    assert left_s(NEEDS, USUAL, {}, set()) == 720.0
    assert left_s(NEEDS, USUAL, {"cluster": 500.0}, {"vpc", "role"}) == 200.0
    assert left_s(NEEDS, USUAL, {}, set(NEEDS)) == 0.0


def test_a_step_that_takes_longer_than_last_time_counts_as_nothing_more() -> None:
    assert left_s(NEEDS, USUAL, {"cluster": 900.0}, {"vpc", "role"}) == 100.0


def test_one_unknown_step_makes_the_estimate_unknown_until_it_is_done() -> None:
    usual = {**USUAL, "role": None}
    assert left_s(NEEDS, usual, {}, set()) is None
    assert left_s(NEEDS, usual, {}, {"role"}) == 710.0


def test_what_steps_took_is_there_for_the_next_command(tmp_path: Path) -> None:
    path = tmp_path / "home" / "durations.json"
    Durations(path).keep({"aws create cluster": 600.04, "aws create vpc": 1.0})
    Durations(path).keep({"aws create vpc": 2.0})
    kept = Durations(path)
    assert [kept.of(f"aws create {kind}") for kind in ("cluster", "vpc", "role")] == [600.0, 2.0, None]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"seconds": [1]}', '{"seconds": {"s": "1"}}', '{"seconds": {"s": true}}', "\udcff"]
    + [json.dumps({"seconds": {"s": value}}) for value in (-1, 1e9)]
    + ['{"seconds": {"s": NaN}}', '{"seconds": {"s": 1e999}}'],
)
def test_a_damaged_file_is_an_unknown_estimate(tmp_path: Path, text: str) -> None:
    path = tmp_path / "durations.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    kept = Durations(path)
    assert kept.of("s") is None
    kept.keep({"s": 3.0})
    assert Durations(path).of("s") == 3.0
