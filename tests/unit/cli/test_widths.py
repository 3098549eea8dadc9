"""Tables within the width of a terminal: no line wraps, and what is left out is named."""

from __future__ import annotations

import pytest

from cloudrec.app import ClusterView
from cloudrec.app.reach.size import ClusterSize
from cloudrec.cli import output
from cloudrec.cli.cluster_tables import clusters_table
from cloudrec.cli.main import _COMMANDS, _MEANT
from cloudrec.cli.run_tables import runs_table
from cloudrec.cli.watching import changes
from cloudrec.engine.cost import Cost
from cloudrec.launchers.base.ledger import RunState
from cloudrec.observe.runs import RunView

VIEW = ClusterView(
    name="recommender-training",
    provider="azure",
    owner="a.very.long.name",
    state="NOT READY",
    resources=(),
    cost=Cost(known_usd=1044.26),
    created=0.0,
    expires="2026-11-27T03:54:30Z",
    spent_usd=8123.4,
    region="southcentralus",
    budget_usd=10_000.0,
    size=ClusterSize(running=31, wanted=32, gpus=248, node_types=("Standard_ND96asr_v4",)),
)


@pytest.fixture(autouse=True)
def _table() -> None:
    output.choose_format("table")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_of_clusters_or_runs_is_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for text in (clusters_table([VIEW]), runs_table([run("b")]), runs_table([run("a"), run("b")])):
        assert max(map(len, text.splitlines())) <= width, text
        assert ("not shown: " in text) == ("-o wide" in text)
    assert "not shown: " in clusters_table([VIEW])
    assert ("not shown: " in runs_table([run("b")])) == (width < 120)


def run(name: str) -> RunView:
    return RunView(
        name=name,
        state=RunState.RUNNING,
        launcher="kubernetes",
        cluster="c",
        world_size=248,
        step=123_456,
        total_steps=999_999,
        loss=0.4567,
        auc=0.7891,
        samples_per_s=12_345_678.0,
        goodput=0.91,
        restarts=3,
        checkpoint=123_400,
        wall_s=98_765.0,
        cost_usd=12_345.67,
    )


def test_the_state_and_the_price_are_left_out_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    head = clusters_table([VIEW]).splitlines()[0].split()
    assert head[:2] == ["CLUSTER", "STATE"]
    assert "$/H" in head


def test_wide_and_a_pipe_show_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    for choice in ("table", "wide"):
        output.choose_format(choice)
        text = clusters_table([VIEW])
        for each in ("31 of 32", "248", "southcentralus", "$8,123.40", "$1,876.60 of $10,000", "OWNER"):
            assert each in text
        assert "not shown" not in text
    monkeypatch.setenv("COLUMNS", "60")
    assert "OWNER" in clusters_table([VIEW]).splitlines()[0]


def test_one_named_cluster_is_listed_whole_where_its_row_is_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = clusters_table([VIEW], one=True).splitlines()
    assert max(map(len, lines)) <= 60
    assert "REGION    southcentralus" in lines
    assert "NODES     31 of 32" in lines


def test_what_is_not_known_is_no_zero() -> None:
    unknown = ClusterView(
        name="c",
        provider="aws",
        owner="me",
        state="UNREACHABLE",
        resources=(),
        cost=Cost(),
        created=None,
        budget_usd=500.0,
    )
    head, row, *_ = clusters_table([unknown]).splitlines()
    cells = dict(zip(head.split(), row.replace("unknown of $500", "unknown/$500").split(), strict=True))
    assert (cells["NODES"], cells["GPUS"], cells["SPENT"], cells["LEFT"]) == ("-", "-", "-", "unknown/$500")


def test_changes_name_what_is_new_other_and_gone() -> None:
    before = {"run a": "RUNNING", "run b": "RUNNING", "cluster c": "READY"}
    now = {"run a": "SUCCEEDED", "cluster c": "READY", "cluster d": "INCOMPLETE"}
    assert changes(before, now) == [
        "cluster d: INCOMPLETE (new)",
        "run a: RUNNING -> SUCCEEDED",
        "run b: gone",
    ]


def test_no_word_of_other_tools_means_two_commands_or_hides_one() -> None:
    words = [word for group in _MEANT.values() for word in group.split()]
    assert len(words) == len(set(words))
    assert set(_MEANT) <= set(_COMMANDS)
    assert not set(words) & set(_COMMANDS)
