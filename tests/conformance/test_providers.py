"""The guarantees of every provider, tested on each provider that is available."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from cloudrec import app, providers
from cloudrec.app import AppContext
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, TAG_OWNER, Graph
from cloudrec.engine.plan import PlanStep
from cloudrec.errors import DeclinedError, SpecError, UsageError
from cloudrec.home import Home
from cloudrec.spec.models import ClusterSpec
from tests.conformance.support_clouds import CLOUDS, Cloud, until

PROVIDERS = providers.names()


@dataclass(frozen=True)
class Asked:
    """A cluster, and the environment variables of its provider."""

    spec: ClusterSpec
    environment: Mapping[str, str]

    @property
    def provider(self) -> str:
        return self.spec.provider


def context(folder: Path, asked: Asked | None = None) -> AppContext:
    environment = asked.environment if asked else {}
    return AppContext(home=Home(root=folder / "home"), environment=environment)


def files_under(folder: Path) -> list[str]:
    """Return the paths under a folder without those that outlive a cluster: the journal, locks, tables."""
    kept = {"prices", "durations.json", "journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", "locks"}
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if not kept & set(path.relative_to(folder).parts[1:2])
    )


def up(application: AppContext, cluster: Asked) -> list[PlanStep]:
    """Run `up`; return the action on each of the cluster's own resources."""
    actions = app.up(application, cluster.spec, decide=lambda _plan: True).actions
    return [action.step for action in actions if action.resource is None or not action.resource.is_shared]


def down(application: AppContext, cluster: Asked, *, keep_data: bool = False) -> None:
    app.down(
        application,
        provider_name=cluster.provider,
        cluster_name=cluster.spec.title,
        keep_data=keep_data,
        decide=lambda _removal: True,
    )


@pytest.fixture(params=PROVIDERS)
def cluster(request: pytest.FixtureRequest, stand_ins: Callable[[str], Cloud]) -> Asked:
    spec = ClusterSpec(name="conformance", provider=request.param, owner="tester")
    if request.param not in CLOUDS:
        return Asked(spec, {})
    cloud = stand_ins(request.param)
    cloud.reset()
    return Asked(spec.model_copy(update={"settings": dict(cloud.ways.settings)}), cloud.env)


def test_the_suite_finds_providers() -> None:
    assert "local" in PROVIDERS


def test_resources_are_deterministic_tagged_and_have_drivers(tmp_path: Path, cluster: Asked) -> None:
    provider = context(tmp_path, cluster).provider(cluster.provider)
    resources = provider.resources(cluster.spec)
    assert list(resources) == list(provider.resources(cluster.spec))
    drivers = provider.drivers(cluster.spec)
    for resource in Graph.of(resources).resources.values():
        assert resource.kind in drivers
        assert resource.tags[TAG_CLUSTER] == "conformance"
        assert resource.tags[TAG_OWNER] == "tester"
        assert resource.tags[TAG_KEY] == resource.key


def test_up_then_down_restores_the_initial_state(tmp_path: Path, cluster: Asked) -> None:
    application = context(tmp_path, cluster)
    application.home.clusters.mkdir(parents=True)
    before = files_under(tmp_path)
    assert set(up(application, cluster)) == {PlanStep.CREATE}
    assert set(up(application, cluster)) == {PlanStep.KEEP}
    assert [view.state for view in app.clusters(application)] == ["READY"]
    down(application, cluster)
    assert files_under(tmp_path) == before
    assert app.clusters(application) == []
    assert app.leaks(application, cluster.provider).leaks == ()


def test_a_dry_run_changes_nothing(tmp_path: Path, cluster: Asked) -> None:
    application = context(tmp_path, cluster)
    app.up(application, cluster.spec, decide=lambda _plan: False)
    assert app.leaks(application, cluster.provider).leaks == ()
    assert app.clusters(application) == []


def test_a_declined_plan_changes_nothing(tmp_path: Path, cluster: Asked) -> None:
    application = context(tmp_path, cluster)

    def decline(_plan: object) -> bool:
        raise DeclinedError("no")

    with pytest.raises(DeclinedError):
        app.up(application, cluster.spec, decide=decline)
    assert app.leaks(application, cluster.provider).leaks == ()
    up(application, cluster)
    found = app.leaks(application, cluster.provider).leaks
    with pytest.raises(DeclinedError):
        app.down(application, provider_name=None, cluster_name=None, keep_data=False, decide=decline)
    assert app.leaks(application, cluster.provider).leaks == found


def test_down_works_without_a_journal(tmp_path: Path, cluster: Asked) -> None:
    application = context(tmp_path, cluster)
    up(application, cluster)
    for file in application.home.root.glob("journal.sqlite*"):
        file.unlink()
    again = context(tmp_path, cluster)
    down(again, cluster)
    assert app.leaks(again, cluster.provider).leaks == ()


def test_a_cluster_with_an_unreadable_record_is_shown_as_such_and_can_be_removed(
    tmp_path: Path, cluster: Asked
) -> None:
    application = context(tmp_path, cluster)
    up(application, cluster)
    settings = {**cluster.spec.settings, "renamed_meanwhile": 1}
    asked = {**cluster.spec.model_dump(mode="json"), "settings": settings, "spares": 2}
    application.journal.put_cluster("conformance", cluster.provider, asked)
    (view,) = app.clusters(application)
    assert view.state == "UNREADABLE"
    assert "spares" in view.problem
    assert "renamed_meanwhile" in view.problem
    down(application, cluster)
    assert app.clusters(application) == []
    assert app.leaks(application, cluster.provider).leaks == ()


def test_an_unknown_setting_is_refused_with_the_closest_match(tmp_path: Path, cluster: Asked) -> None:
    wrong = cluster.spec.model_copy(update={"settings": {"storag": "x", "min_free_gb": 1}})
    with pytest.raises(SpecError, match="is not known"):
        app.up(context(tmp_path, cluster), wrong, decide=lambda _plan: True)


def test_a_manually_damaged_cluster_is_shown_as_such_and_repaired_by_up(
    tmp_path: Path, cluster: Asked
) -> None:
    application = context(tmp_path, cluster)
    up(application, cluster)
    provider = application.provider(cluster.provider)
    needed = set().union(*provider.kinds.values())
    victim = next(found for found in provider.search("conformance") if found.kind not in needed)
    provider.drivers(cluster.spec)[victim.kind].delete(victim)
    until(lambda: [view.state for view in app.clusters(application)] == ["INCOMPLETE"], "seen to be missing")
    assert PlanStep.CREATE in up(application, cluster)
    assert [view.state for view in app.clusters(application)] == ["READY"]


def test_a_name_in_use_by_a_cluster_of_another_provider_is_refused(tmp_path: Path, cluster: Asked) -> None:
    application = context(tmp_path, cluster)
    application.journal.put_cluster("conformance", "some-other-cloud", {})
    with pytest.raises(UsageError, match="of provider 'some-other-cloud' exists"):
        up(application, cluster)


# Runs one real command in a process that is killed by SIGKILL at its n-th file change or journal
# statement.
KILLER = """
import functools, os, signal, sqlite3, sys
home, limit, arguments = os.environ["CLOUDREC_HOME"], int(sys.argv[1]), sys.argv[2:]
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "sqlite3.execute", "open"}
class Counted(sqlite3.Connection):
    def execute(self, *arguments):
        watch("sqlite3.execute", [home])
        return super().execute(*arguments)
sqlite3.connect = functools.partial(sqlite3.connect, factory=Counted)
changes = 0
def watch(event, details):
    global changes
    if event not in CHANGES or not str(details[0]).startswith(home):
        return
    if event == "open" and not details[2] & (os.O_WRONLY | os.O_RDWR):
        return
    changes += 1
    if changes > limit:
        os.kill(os.getpid(), signal.SIGKILL)
from cloudrec.cli.main import run
sys.addaudithook(watch)
sys.exit(run(arguments))
"""


def killed_after(home: Path, changes: int, *arguments: str) -> int:
    environment = {**os.environ, "CLOUDREC_HOME": str(home), "CLOUDREC_CLUSTER_OWNER": "tester"}
    command = [sys.executable, "-c", KILLER, str(changes), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, timeout=180, check=False).returncode


def kill_at_every(folder: Path, command: str, *, stride: int) -> int:
    """Kill `up` or `down` at every stride-th change and recover; return the number of kills."""
    cluster = Asked(ClusterSpec(name="conformance", provider="local", owner="tester"), {})
    arguments = (command, "local", "--cluster", "conformance", *(["--yes"] if command == "down" else []))
    for moments, changes in enumerate(range(0, 1000, stride)):
        home = folder / str(changes)
        application = context(home)
        application.home.clusters.mkdir(parents=True)
        before = files_under(home)
        if command == "down":
            up(application, cluster)
        code = killed_after(application.home.root, changes, *arguments)
        assert code in {0, -signal.SIGKILL}
        if moments % 2:  # `up` completes the interrupted changes, or `down` removes them
            up(context(home), cluster)
            assert [view.state for view in app.clusters(context(home))] == ["READY"]
        down(context(home), cluster)
        assert files_under(home) == before, f"{command} killed at change {changes} leaves files"
        assert app.clusters(context(home)) == []
        if code == 0:
            return moments
    raise AssertionError(f"{command} never finished")


@pytest.mark.parametrize("command", ["up", "down"])
def test_sigkill_at_a_file_change_is_recovered_without_orphaned_resources(
    tmp_path: Path, command: str
) -> None:
    assert kill_at_every(tmp_path, command, stride=5) >= 4


@pytest.mark.soak
@pytest.mark.parametrize("command", ["up", "down"])
def test_sigkill_at_every_file_change_is_recovered_without_orphaned_resources(
    tmp_path: Path, command: str
) -> None:
    assert kill_at_every(tmp_path, command, stride=1) >= 12
