"""An unreadable row of the journal does not hide other clusters, and its cluster can be removed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.errors import CloudrecError, StorageError
from cloudrec.home import Home
from cloudrec.spec.models import ClusterSpec
from cloudrec.spec.requests import read_request
from tests.unit.engine.support import make_journal_old


@pytest.fixture
def application(tmp_path: Path) -> AppContext:
    """A home with two clusters, `good` and `odd`."""
    application = AppContext(home=Home(root=tmp_path / "home"), environment={})
    for name in ("good", "odd"):
        app.up(application, _spec(name), decide=lambda _plan: True)
    return application


def _spec(name: str) -> ClusterSpec:
    return ClusterSpec(name=name, provider="local", owner="tester")


def _again(application: AppContext) -> AppContext:
    return AppContext(home=application.home, environment={})


def _write(application: AppContext, statement: str, *values: object) -> AppContext:
    """Change the journal manually, and return the view of a later command."""
    with sqlite3.connect(application.home.journal) as file:
        file.execute(statement, values)
    file.close()
    return _again(application)


def _ask_otherwise(application: AppContext, **keys: Any) -> AppContext:
    asked = json.dumps(_spec("odd").model_dump(mode="json") | keys)
    return _write(application, "update clusters set request = ? where name = 'odd'", asked)


def _down(application: AppContext, name: str) -> None:
    app.down(
        application, provider_name=None, cluster_name=name, keep_data=False, decide=lambda _removal: True
    )


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"spares": 2}, "'spares' is not known"),
        ({"nodes": "many"}, "'nodes' is refused"),
        ({"nodes": 10**400}, "'nodes' is refused"),
        ({"ttl": "forever"}, "'ttl' is refused"),
        ({"budget_usd": "much"}, "'budget_usd' is refused"),
        ({"settings": []}, "'settings' is refused"),
        ({"settings": {"min_free_gb": 1}}, "min_free_gb is not known"),
    ],
)
def test_a_spec_that_this_version_refuses_is_shown_with_the_reason_and_can_be_removed(
    application: AppContext, keys: dict[str, Any], reason: str
) -> None:
    application = _ask_otherwise(application, **keys)
    views = {view.name: view for view in app.clusters(application)}
    assert (views["good"].state, views["good"].problem) == ("READY", "")
    assert views["odd"].state == "UNREADABLE"
    assert reason in views["odd"].problem
    assert "cloudrec down --cluster odd" in views["odd"].problem
    _down(application, "odd")
    assert [(view.name, view.state) for view in app.clusters(application)] == [("good", "READY")]
    assert {leak.found.cluster for leak in app.leaks(application, "local").leaks} == {"good"}


@pytest.mark.parametrize("text", ["", "[]", "null", '{"name"', "[" * 100_000, b"\xff\xfe"])
def test_a_spec_that_is_not_a_json_object_is_shown_and_can_be_removed(
    application: AppContext, text: str | bytes
) -> None:
    application = _write(application, "update clusters set request = ? where name = 'odd'", text)
    views = {view.name: view for view in app.clusters(application)}
    assert views["good"].state == "READY"
    assert "no JSON object" in views["odd"].problem
    assert app.expired(application, "local") == []
    _down(application, "odd")
    assert [view.name for view in app.clusters(application)] == ["good"]


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("clusters", "created", "yesterday"),
        ("clusters", "created", float("inf")),
        ("clusters", "request_version", 99),
        ("clusters", "request_version", "two"),
        ("clusters", "provider", "gone-cloud"),
        ("entries", "tags", "no tags"),
        ("entries", "tags", "[1]"),
        ("entries", "hourly_usd", float("inf")),
        ("entries", "hourly_usd", "much"),
        ("events", "time", "noon"),
    ],
)
def test_a_column_of_a_wrong_type_does_not_hide_other_clusters(
    application: AppContext, table: str, column: str, value: object
) -> None:
    where = "name" if table == "clusters" else "cluster"
    statement = f"update {table} set {column} = ? where {where} = 'odd'"  # noqa: S608 - names from above
    application = _write(application, statement, value)
    views = {view.name: view for view in app.clusters(application)}
    assert views["good"].state == "READY"
    assert "odd" in views
    assert application.journal.events("odd")
    if column != "provider":
        _down(application, "odd")
    _down(application, "good")
    assert "good" not in {view.name for view in app.clusters(application)}


def test_a_cluster_with_an_unreadable_record_is_refused_by_other_commands(application: AppContext) -> None:
    application = _ask_otherwise(application, spares=2)
    assert app.choose(application, provider_name=None, cluster_name="good").title == "good"
    with pytest.raises(CloudrecError, match="'spares' is not known") as refused:
        app.choose(application, provider_name=None, cluster_name="odd")
    assert "cloudrec down --cluster odd" in (refused.value.remedy or "")
    with pytest.raises(CloudrecError, match="'spares' is not known"):
        app.up(application, _spec("odd"), decide=lambda _plan: True)
    app.up(application, _spec("good"), decide=lambda _plan: True)


def test_a_journal_of_the_previous_version_is_migrated(application: AppContext) -> None:
    make_journal_old(application.home.journal, 2)
    again = _again(application)
    assert [view.state for view in app.clusters(again)] == ["READY", "READY"]
    _down(again, "odd")
    assert [view.name for view in app.clusters(again)] == ["good"]


@pytest.mark.parametrize(
    "changes", [[], ["alter table clusters add column planet text not null default 'earth'"]]
)
def test_with_a_journal_of_a_newer_schema_status_and_down_work_and_up_is_refused(
    application: AppContext, changes: list[str]
) -> None:
    for statement in [*changes, "pragma user_version = 9"]:
        application = _write(application, statement)
    assert [(view.name, view.state) for view in app.clusters(application)] == [
        ("good", "READY"),
        ("odd", "READY"),
    ]
    with pytest.raises(
        StorageError, match=r"of a newer cloudrec .schema 9; this one knows .*status"
    ) as refused:
        app.up(application, _spec("third"), decide=lambda _plan: True)
    assert "upgrade cloudrec" in (refused.value.remedy or "")
    _down(application, "odd")
    assert [view.name for view in app.clusters(_again(application))] == ["good"]
    with sqlite3.connect(application.home.journal) as file:
        assert file.execute("pragma user_version").fetchone() == (9,)
    file.close()


@pytest.mark.parametrize(
    "statement",
    ["alter table entries rename column tags to labels", "alter table events add column by text not null"],
)
def test_a_newer_schema_that_lacks_what_this_version_uses_is_refused(
    application: AppContext, statement: str
) -> None:
    if "not null" in statement:
        application = _write(application, "drop table events")
        statement = "create table events (time, cluster, key, event, detail, by text not null)"
    for each in (statement, "pragma user_version = 9"):
        application = _write(application, each)
    with pytest.raises(StorageError, match=r"of a newer cloudrec .* lacks what this one reads"):
        app.clusters(application)


def test_a_spec_of_an_older_version_is_migrated_step_by_step() -> None:
    steps = {
        1: lambda values: {"hosts": values["machines"]},
        2: lambda values: {"nodes": values["hosts"] * 2},
    }
    read = read_request({"machines": 3}, name="x", provider="aws", version=1, upgrades=steps, newest=3)
    assert (read.cluster.nodes, read.problem) == (6, "")
    newest = read_request({"hosts": 4}, name="x", provider="aws", version=2, upgrades=steps, newest=3)
    assert newest.cluster.nodes == 8


def test_a_journal_of_a_newer_version_is_read_as_far_as_possible() -> None:
    read = read_request({"region": "eu-west-1", "planets": 9}, name="x", provider="aws", version=7)
    assert read.cluster.region == "eu-west-1"
    assert "version 7" in read.problem
    assert "'planets'" in read.problem


@pytest.mark.parametrize("damage", ["half", "text", "table"])
def test_a_damaged_journal_is_reported_with_its_remedy(application: AppContext, damage: str) -> None:
    path = application.home.journal
    with sqlite3.connect(path) as file:
        file.execute("pragma wal_checkpoint(truncate)")
        if damage == "table":
            file.execute("drop table clusters")
    file.close()
    if damage == "half":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "text":
        path.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(StorageError, match="is damaged") as refused:
        app.clusters(_again(application))
    assert refused.value.exit_code == 1
    assert "move it away" in (refused.value.remedy or "")


@pytest.mark.parametrize("kept", ["[]", "{", '{"schema_version": 9, "missing": []}', '{"schema_version": 1}'])
def test_missing_parts_of_a_cluster_are_unknown_if_unreadable(application: AppContext, kept: str) -> None:
    application = _write(application, "update clusters set missing = ? where name = 'odd'", kept)
    views = {view.name: view for view in app.clusters(application)}
    assert views["good"].state == "READY"
    assert views["odd"].state == "NOT READY"
    assert "cannot be read" in views["odd"].missing[0].reason
    app.up(application, _spec("odd"), decide=lambda _plan: True)
    assert [view.state for view in app.clusters(application)] == ["READY", "READY"]


def test_a_tag_that_is_no_name_of_a_cluster_does_not_keep_others_from_their_end(
    application: AppContext,
) -> None:
    said: list[str] = []
    application = AppContext(home=application.home, environment={}, report=said.append)
    ended = {"cloudrec-expires": "2020-01-01T00:00:00+00:00", "cloudrec-owner": "x"}
    for folder, name in (("left", "left"), ("foreign", "../../x")):
        record = {"properties": {"gpus": [], "cores": 1}, "tags": {"cloudrec-cluster": name, **ended}}
        path = application.home.clusters / folder / "machine.json"
        path.parent.mkdir()
        path.write_text(json.dumps(record))
    assert [spec.title for spec in app.expired(application, "local")] == ["left"]
    assert any("'../../x', which is no name" in line for line in said)
