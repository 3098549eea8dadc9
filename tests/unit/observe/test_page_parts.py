"""The parts of a run's page: each is read from the run's files, and damage leaves out that part only."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudrec.launchers.base.ledger import LedgerEvent
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.observe.page.dataset import read_dataset
from cloudrec.observe.page.details import run_details
from cloudrec.observe.page.events import moments
from cloudrec.observe.page.sharding import read_sharding
from cloudrec.observe.runs import view_run


def _plan(*tables: tuple[str, str, list[tuple[int, int, int]]], ranks: int = 2) -> dict[str, Any]:
    """A plan of tables with 8 columns; a shard is its first row, its rows and its rank."""
    return {
        "world_size": ranks,
        "tables": {
            name: {
                "rows": sum(rows for _, rows, _ in shards) or 10,
                "columns": 8,
                "sharding_type": kind,
                "compute_kernel": "fused",
                "ranks": sorted({rank for _, _, rank in shards}) or list(range(ranks)),
                "shards": [
                    {"rows": [at, rows], "columns": [0, 8], "rank": rank} for at, rows, rank in shards
                ],
            }
            for name, kind, shards in tables
        },
    }


def _run(tmp_path: Path, *events: tuple[str, dict[str, Any]], **spec: Any) -> RunFolder:
    run = create_run(tmp_path, RunSpec(name="one", **spec))
    for event, details in events:
        run.ledger.append(event, launch=1, **details)
    return run


def test_a_plan_is_shown_by_table_and_by_rank(tmp_path: Path) -> None:
    plan = _plan(
        ("small", "table_wise", [(0, 100, 0)]),
        ("large", "row_wise", [(0, 300, 0), (300, 300, 1)]),
        ("copied", "data_parallel", []),
    )
    (tmp_path / "sharding_plan.json").write_text(json.dumps(plan))
    view = read_sharding(tmp_path, precision="fp16")
    assert view is not None
    assert [(table.name, table.rows, table.bytes) for table in view.tables] == [
        ("large", 600, 9600),
        ("small", 100, 1600),
        ("copied", 10, 160),
    ]
    assert [(share.shards, share.values) for share in view.shares] == [(3, 8 * 410), (2, 8 * 310)]
    assert view.imbalance == pytest.approx(410 / 360)
    unknown = read_sharding(tmp_path, precision=None)
    assert unknown is not None
    assert unknown.bytes is None  # and not 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"world_size": 0, "tables": {}}',
        '{"world_size": 1e30, "tables": {}}',
        '{"world_size": 1, "tables": []}',
        '{"world_size": 1, "tables": {"t": {"rows": 1, "columns": 1, "shards": [{"rank": 7}]}}}',
        json.dumps(_plan(("t", "table_wise", [(0, 5, 9)]))),
    ],
)
def test_a_damaged_plan_is_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "sharding_plan.json").write_text(text)
    assert read_sharding(tmp_path, precision="fp32") is None


def test_a_dataset_is_described(tmp_path: Path) -> None:
    splits = {"train": {"rows": 400, "positives": 100}, "test": {"rows": 40}}
    sizes = {"C1": 7, "C2": 8}
    document = {"splits": splits, "dense_features": ["I1"], "sparse_features": ["C1", "C2"], "digest": "ab"}
    (tmp_path / "dataset.json").write_text(json.dumps({**document, "num_embeddings_per_feature": sizes}))
    view = read_dataset(str(tmp_path))
    assert (view.train_rows, view.test_rows, view.positives) == (400, 40, 0.25)
    assert (view.dense, view.sparse, view.table_rows, view.problem) == (1, 2, 15, "")


@pytest.mark.parametrize("text", ["{", "[]", '{"splits": 3, "num_embeddings_per_feature": []}'])
def test_a_damaged_description_of_a_dataset_has_no_numbers(tmp_path: Path, text: str) -> None:
    (tmp_path / "dataset.json").write_text(text)
    view = read_dataset(str(tmp_path))
    assert (view.train_rows, view.positives, view.table_rows) == (None, None, None)
    assert read_dataset("s3://bucket/data").problem
    assert read_dataset(str(tmp_path / "gone")).problem


def test_ranks_have_the_state_of_the_newest_launch(tmp_path: Path) -> None:
    run = _run(tmp_path, ("submitted", {}), ("rank_started", {"rank": 0, "attempt": 0}), nproc_per_node=4)
    for rank, code in ((1, 0), (2, 75), (3, 9)):
        run.ledger.append("rank_started", launch=1, rank=rank, attempt=1)
        run.ledger.append("rank_ended", launch=1, rank=rank, attempt=1, exit_code=code)
    run.rank_log(0).write_text("=== launch 1\nfirst\nlast line\n\n")
    ranks = run_details(run, view_run(run)).ranks
    states = ["finished", "stopped with a checkpoint", "exit code 9"]
    assert [rank.state for rank in ranks][1:] == states
    assert ranks[0].line == "last line"


def test_checkpoints_are_those_reported_with_what_is_still_there(tmp_path: Path) -> None:
    run = _run(tmp_path, ("submitted", {}))
    record = {"kind": "checkpoint", "bytes": 100, "seconds": 0.5, "write_s": 2, "content": "full"}
    with run.metrics_file.open("w") as file:
        for step in (10, 20):
            file.write(json.dumps({**record, "step": step}) + "\n")
    for step in (20, 30):
        place = run.path / "checkpoints" / f"step-{step:08d}"
        place.mkdir(parents=True)
        (place / "commit-00000001.json").write_text("{}")
    found = run_details(run, view_run(run)).checkpoints
    assert [(each.step, each.is_kept, each.bytes) for each in found] == [
        (30, True, None),
        (20, True, 100),
        (10, False, 100),
    ]


def test_what_the_keeper_did_is_between_the_events() -> None:
    events = [
        LedgerEvent(time=100, event="submitted", launch=1),
        LedgerEvent(time=100, event="started", launch=1),  # within one millisecond
        LedgerEvent(time=160, event="failed", launch=1, details={"cause": "gone"}),
    ]
    shown = moments(events, [(130, "moved to another zone")])
    assert [moment.event for moment in shown] == ["failed", "keeper", "started", "submitted"]
    assert [moment.after for moment in shown] == ["+1 min 00 s", "+30.0 s", "+0.0 s", "+0.0 s"]
    assert shown[0].text == "gone"


def test_cost_against_auc_needs_a_price(tmp_path: Path) -> None:
    run = _run(tmp_path, ("submitted", {}), ("started", {"pid": 1}), hourly_usd=3600.0)
    with run.metrics_file.open("w") as file:
        for step, when in ((1, 100), (2, 110)):
            file.write(json.dumps({"kind": "eval", "step": step, "auc": 0.7, "time": when}) + "\n")
    view = view_run(run)
    assert not [chart for chart in run_details(run, view).charts if chart.key == "auc-cost"]
    charts = run_details(run, replace(view, cost_usd=20.0, wall_s=10.0)).charts
    (chart,) = (chart for chart in charts if chart.key == "auc-cost")
    assert '"lines":[[[0,0.0,0,0.7],[20,10.0,0,0.7]]]' in chart.data  # 10 s at $2 each
