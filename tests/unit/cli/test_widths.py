"""Tables within the width of a terminal: no line wraps, and what is left out is named."""

from __future__ import annotations

import time

import pytest

from cloudrec.app import ClusterView, Leak
from cloudrec.app.reach.size import ClusterSize
from cloudrec.cli import output
from cloudrec.cli.cluster_tables import clusters_table
from cloudrec.cli.commands.look import _leaks_table
from cloudrec.cli.main import _COMMANDS, _MEANT
from cloudrec.cli.run_tables import event_text, runs_table
from cloudrec.cli.watching import changes
from cloudrec.engine.cost import Cost
from cloudrec.engine.graph import Condition, Observed
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


def finding(check: str, found: str, needed: str = "") -> tuple[str, str, str, str | None]:
    return (check, "ok", found, needed or None)


def test_columns_of_text_continue_on_the_next_line(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = ("CHECK", "RESULT", "FOUND", "NEEDED")
    rows = [
        finding("credentials", "arn:aws:iam::123456789012:user/a-user-with-a-long-name in us-east-1"),
        finding("quota: on-demand vCPUs for 2 x p4d.24xlarge", "0 of 5,000 used", "192"),
    ]
    texts = ["CHECK", "FOUND", "NEEDED"]
    monkeypatch.setenv("COLUMNS", "80")
    shown = output.wrapped(headers, rows, texts=texts)
    assert max(map(len, shown.splitlines())) <= 80
    for word in ("us-east-1", "p4d.24xlarge", "0 of 5,000 used", "192"):
        assert word in shown
    monkeypatch.setenv("COLUMNS", "300")
    assert output.wrapped(headers, rows, texts=texts) == output.columns(headers, rows)


def leak(created: float | None) -> Leak:
    return Leak(
        found=Observed(
            kind="node-group",
            name="gpu",
            identity="arn:aws:eks:us-east-1:123456789012:nodegroup/recommender-training/gpu/8cc5a7",
            condition=Condition.READY,
            tags={"cloudrec:cluster": "recommender-training"},
            hourly_usd=12.5,
            location="us-east-1",
            created=created,
        ),
        claim="",
    )


def test_leaks_fit_into_the_terminal_without_identities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = _leaks_table([leak(0.0)])
    assert max(map(len, shown.splitlines())) <= 80
    assert "node-group/gpu" in shown
    assert "arn:aws:eks" not in shown
    assert "not shown: IDENTITY" in shown
    output.choose_format("wide")
    assert "arn:aws:eks" in _leaks_table([leak(0.0)])


def test_a_resource_of_the_future_has_no_negative_age() -> None:
    row = _leaks_table([leak(time.time() + 36_502)]).splitlines()[1]
    assert "  0s  " in row


def test_the_end_of_a_rank_is_shown_in_words_and_without_its_command() -> None:
    end = {"exit_code": 75, "kind": "preempted", "cause": "", "step": 9, "machine_leaves": False}
    assert (
        event_text({"end": end, "exit_code": 75, "rank": 3}) == "exit code 75, kind preempted, step 9, rank 3"
    )
    assert event_text({"command": ["python", "-P"], "pid": 6955}) == "pid 6955"
    assert event_text({"end": {"step": 0, "notice": ""}, "grace_s": 10**400}).startswith("step 0, grace s 1")
    assert event_text({"checkpoint": None, "grace_s": 90}) == "checkpoint -, grace 1m30s"
    assert event_text({"exit_codes": {"0": 75, "1": 75}}) == "exit code 75"
    assert event_text({"exit_codes": {"0": 75, "1": 75, "2": 1}}) == "exit codes 75 (2 ranks) 1 (1 rank)"
