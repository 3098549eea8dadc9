"""The guarantees of `up` and `down` on every cloud with a stand-in: no orphaned resources, no duplicates."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.app.accounts import OtherAccountError
from cloudrec.engine.plan import PlanStep
from cloudrec.errors import INTERRUPTED, CloudrecError, PreflightError, SpecError, UsageError
from cloudrec.providers.base.protocol import CanScaleToZero, SizesPools, account_of
from tests.conformance.support_clouds import CLOUDS, Cloud, Site, stand_in, until
from tests.tallies import Tally

Calls = list[dict[str, Any]]
ROUNDS = 4
STRIDE = int(os.environ.get("DEATHS_STRIDE", "1"))  # calls between two kills
TRANSIENT = ("throttle", "5xx", "lost", pytest.param("drop", marks=pytest.mark.soak))


@pytest.fixture(scope="session")
def calm(process: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """The calls of an undisturbed `up` and `down`."""
    process.reset()
    site = Site(process, tmp_path_factory.mktemp("calm"))
    site.up()
    made, up = process.kinds(), process.calls()
    site.down()
    assert process.state() == []
    return Calm(made, up, process.calls(len(up)), process)


class Calm:
    def __init__(self, made: Counter[str], up: Calls, down: Calls, cloud: Cloud) -> None:
        self.made = made
        self.calls = {"up": up, "down": down}
        self.changes = {
            command: list(dict.fromkeys(cloud.changing(calls))) for command, calls in self.calls.items()
        }


def test_the_suite_finds_clouds() -> None:
    assert "aws" in CLOUDS


def test_a_second_up_makes_no_changing_call_and_down_restores_the_account(site: Site) -> None:
    site.up()
    before, calls = site.cloud.state(), len(site.cloud.calls())
    site.up()
    assert site.cloud.changing(site.cloud.calls(calls)) == []
    assert site.cloud.state() == before
    assert [view.state for view in app.clusters(site.application)] == ["READY"]
    site.down()
    assert site.cloud.state() == []
    assert app.clusters(site.application) == []
    assert app.leaks(site.application, site.cloud.name).leaks == ()


@pytest.mark.parametrize(
    "nth", [pytest.param(8, id="eighth"), pytest.param(1, id="every", marks=pytest.mark.soak)]
)
def test_up_and_down_killed_at_a_sample_of_changes_continue_without_duplicates_or_orphans(
    calm: Calm, site: Site, nth: int
) -> None:
    left = {command: changes[::nth] for command, changes in calm.changes.items()}
    for when in ("before", "after") * ROUNDS:
        # Changes that ran beside a killed one are not repeated, so another round kills them. `make soak`
        # kills at every single call, both before and after its effect.
        for command in ("up", "down"):
            died = site.die_at_each(command, left[command], when=when)
            left[command] = [change for change in left[command] if change[1] not in died]
            if command == "up":
                assert site.cloud.kinds() == calm.made
        assert site.cloud.state() == []
        if not any(left.values()):
            return
    raise AssertionError(f"never died at {left}")


@pytest.mark.parametrize(
    "nth", [pytest.param(3, id="third"), pytest.param(1, id="every", marks=pytest.mark.soak)]
)
def test_down_leaves_nothing_after_a_killed_up_with_a_lost_journal_and_late_lists(
    calm: Calm, site: Site, nth: int
) -> None:
    site.cloud.late_lists()
    births = [change for change in calm.changes["up"] if re.match(site.cloud.ways.births, change[1])]
    for number, (service, action) in enumerate(births[::nth]):
        code = site.run("up", service=service, action=re.escape(action), when="after")
        assert code in {0, -signal.SIGKILL}, action
        if number % 2 == 0:
            site.lose_journal()
    site.cloud.control(kill=None)
    site.up()
    site.up()  # the next `up` deletes duplicates
    assert site.cloud.kinds() == calm.made
    site.lose_journal()
    site.down()
    assert site.cloud.state() == []


@pytest.mark.parametrize("kind", TRANSIENT)
def test_transient_faults_at_every_kind_of_call_are_retried(calm: Calm, site: Site, kind: str) -> None:
    for command in ("up", "down"):
        calls = dict.fromkeys((call["service"], call["action"]) for call in calm.calls[command])
        faults = [
            {"kind": kind, "service": service, "action": re.escape(action)} for service, action in calls
        ]
        site.cloud.control(faults=faults)
        if command == "up":
            site.up()
            assert site.cloud.kinds() == calm.made
        else:
            site.down()
    assert site.cloud.state() == []


def refuse(site: Site, calm: Calm, service: str, action: str) -> None:
    """Deny one action of `up`: the error names it, and `down` leaves nothing."""
    (asked, *_) = [call["iam_action"] for call in calm.calls["up"] if call["action"] == action]
    site.cloud.reset()  # clears enabled services too, which `down` keeps
    code, words = site.cloud.ways.denial
    denied = {"kind": "error", "code": code, "message": words.format(asked), "status": 403}
    site.cloud.control(
        faults=[{**denied, "service": service, "action": re.escape(action), "times": 1_000_000}]
    )
    running = site.start("up")
    assert running.wait() == 3, (action, running.told)
    assert asked in running.told
    site.cloud.control(faults=[])
    site.down()
    assert site.cloud.state() == [], action


def test_a_denied_action_is_named_by_up_and_down_leaves_nothing(calm: Calm, site: Site) -> None:
    changes = calm.changes["up"]
    for service, action in changes[:: max(len(changes) // 2, 1)]:
        refuse(site, calm, service, action)


def test_ctrl_c_ends_a_command_at_once_and_the_next_command_continues(calm: Calm, site: Site) -> None:
    for command in ("up", "down"):
        changes = calm.changes[command]
        for service, action in changes[1 :: max(len(changes) // 3, 1)]:
            code = site.run(command, service=service, action=re.escape(action), when="before", signal="INT")
            assert code in {0, INTERRUPTED}, (command, action)
        site.cloud.control(kill=None)
        site.up() if command == "up" else site.down()
    assert site.cloud.state() == []


def test_the_guard_scales_training_nodes_to_zero_and_down_from_another_home_leaves_nothing(
    site: Site, tmp_path: Path
) -> None:
    site.up()
    outside = site.application.provider(site.cloud.name)
    assert isinstance(outside, CanScaleToZero)
    guard = outside.guard(site.cluster)
    inside = AppContext(home=site.home, environment={**site.cloud.env, **guard.environment})
    calls = len(site.cloud.calls())
    provider = inside.provider(site.cloud.name)
    assert isinstance(provider, CanScaleToZero)
    done = provider.halt(guard.cluster)
    asked = {call["iam_action"] for call in site.cloud.calls(calls)}
    assert {action for action in asked if action} <= site.cloud.ways.halting
    assert len(done.pools) == 1 or done.is_final
    Site(site.cloud, tmp_path / "elsewhere").down()
    assert site.cloud.state() == []


def test_the_guard_sizes_the_pools_of_a_managed_cluster_and_up_keeps_their_nodes(site: Site) -> None:
    outside = site.application.provider(site.cloud.name)
    assert isinstance(outside, CanScaleToZero)
    if not isinstance(outside, SizesPools):
        site.cluster = site.cluster.model_copy(update={"managed": True})
        with pytest.raises(SpecError, match="creates no nodes"):
            site.up()
        return
    first = next(iter(outside.offers(site.cluster))).instance_type
    managed = {"managed": True, "capacity": "spot-first", "instance_types": (first,)}
    site.cluster = site.cluster.model_copy(update=managed)
    site.up()
    guard = outside.guard(site.cluster)
    inside = AppContext(home=site.home, environment={**site.cloud.env, **guard.environment})
    provider = inside.provider(site.cloud.name)
    assert isinstance(provider, SizesPools)
    pools = provider.pools(guard.cluster)
    assert len(pools) > 2  # zones, spot and on-demand
    assert {pool.nodes for pool in pools} <= {0, None}
    assert nodes_of(site) == 0
    calls = len(site.cloud.calls())
    assert provider.resize(guard.cluster, pools[0].name, 2) == ""
    asked = {call["iam_action"] for call in site.cloud.calls(calls)}
    assert {action for action in asked if action} <= site.cloud.ways.halting
    until(lambda: nodes_of(site) == 2, "two nodes")
    site.up()
    assert nodes_of(site) == 2
    assert provider.resize(guard.cluster, pools[0].name, 0) == ""
    until(lambda: nodes_of(site) == 0, "no nodes")
    site.down()
    assert site.cloud.state() == []


def nodes_of(site: Site) -> int:
    """Return how many GPU nodes run, as the search of a cluster finds them."""
    provider = site.application.provider(site.cloud.name)
    found = provider.search(site.cluster.title, locations=provider.locations(site.cluster))
    return sum(seen.machines.running for seen in found if seen.kind == "gpu-nodes" and seen.machines)


def test_two_concurrent_ups_of_one_home_take_turns_or_one_names_the_lock_holder(
    calm: Calm, site: Site
) -> None:
    both = [site.start("up"), site.start("up")]
    assert [running.wait() for running in both].count(0) >= 1
    assert site.cloud.kinds() == calm.made
    site.down()
    assert site.cloud.state() == []


@pytest.mark.soak
def test_two_concurrent_ups_of_two_homes_create_one_cluster_or_report_a_conflict(
    calm: Calm, site: Site, tmp_path: Path
) -> None:
    other = Site(site.cloud, tmp_path / "elsewhere")
    for running in [site.start("up"), other.start("up")]:
        assert running.wait() in {0, 1, 2, 3}, running.told  # one may find the other's incomplete resources
    codes = [site.start("up").wait() for _ in range(2)]  # the first removes the resources of both
    if codes[-1] == 0:
        assert site.cloud.kinds() == calm.made
    other.down()
    assert site.cloud.state() == []


def test_down_during_an_up_of_another_home_finally_leaves_nothing(site: Site, tmp_path: Path) -> None:
    other = Site(site.cloud, tmp_path / "elsewhere")
    for running in [site.start("up"), other.start("down")]:
        running.wait()
    site.down()
    assert site.cloud.state() == []


def test_credentials_of_another_account_are_refused_without_any_change(site: Site, tmp_path: Path) -> None:
    site.up()
    before = site.cloud.state()
    with stand_in(site.cloud.name) as other:
        other.reset()
        elsewhere = Site(other, tmp_path)  # the same home
        account = account_of(site.application.provider(site.cloud.name), site.cluster)
        others = account_of(elsewhere.application.provider(site.cloud.name), site.cluster)
        expected = OtherAccountError if account else PreflightError  # an adopted cluster has its own identity
        for command in (elsewhere.up, elsewhere.down, *([elsewhere.choose] if account else [])):
            with pytest.raises(expected) as refused:
                command()
            assert account in refused.value.message
            assert others in refused.value.message
        (view,) = app.clusters(elsewhere.application)
        assert view.state == ("OTHER ACCOUNT" if account else "UNREACHABLE")
        if account:
            # A row of an earlier version, without the account.
            site.application.journal.set_account(site.cluster.title, "")
            for command in (elsewhere.up, elsewhere.down):
                with pytest.raises(OtherAccountError, match="does not name its account") as refused:
                    command()
                assert refused.value.exit_code == 2
                assert "--forget" in (refused.value.remedy or "")
        assert other.state() == []
    assert site.cloud.state() == before
    assert [view.state for view in app.clusters(site.application)] == ["READY"]
    site.down()
    assert site.cloud.state() == []
    assert app.clusters(site.application) == []


def test_leaks_removes_orphaned_resources_and_nothing_else(site: Site, tmp_path: Path) -> None:
    lost, other = Site(site.cloud, tmp_path / "lost", "lost"), Site(site.cloud, tmp_path / "other", "other")
    other.up()  # live, and known only to another home
    before = site.cloud.state()
    assert lost.run("up", action=site.cloud.ways.control_plane, when="before") == -signal.SIGKILL
    site.cloud.control(kill=None)
    found = app.leaks(site.application, site.cloud.name).leaks
    claims = {(leak.found.cluster, leak.claim) for leak in found}
    assert claims == {("lost", ""), ("other", "alive")}
    gone = app.remove_leaks(site.application, site.cloud.name, found, decide=lambda _stray: False)
    assert len(gone) == sum(leak.found.cluster == "lost" for leak in found)  # shown, and kept
    assert site.cloud.state() != before
    app.remove_leaks(site.application, site.cloud.name, found, decide=lambda _stray: True)
    assert site.cloud.state() == before
    other.down()
    assert site.cloud.state() == []


def test_an_expired_cluster_is_found_from_another_home(site: Site, tmp_path: Path) -> None:
    end = datetime.now(UTC) + timedelta(days=1)
    site.cluster = site.cluster.model_copy(update={"expires": f"{end:%Y-%m-%dT%H:%M:%SZ}"})
    lasting = Site(site.cloud, tmp_path / "lasting", "lasting")
    lasting.cluster = lasting.cluster.model_copy(update={"ttl": "30d"})
    site.up()
    lasting.up()
    elsewhere = Site(site.cloud, tmp_path / "elsewhere")
    for home in (elsewhere, site, lasting):
        assert app.expired(home.application, site.cloud.name) == []
        over = app.expired(replace(home.application, now=lambda: end), site.cloud.name)
        assert [cluster.title for cluster in over] == ["conformance"]
    elsewhere.down()
    assert app.expired(replace(elsewhere.application, now=lambda: end), site.cloud.name) == []
    lasting.down()
    assert site.cloud.state() == []


def test_another_cluster_of_a_similar_name_is_never_touched(site: Site, tmp_path: Path) -> None:
    for name in ("conformance-2", "conform"):
        Site(site.cloud, tmp_path / name, name).up()
    before = site.cloud.state()
    site.up()
    site.down()
    assert site.cloud.state() == before


def test_down_without_a_name_removes_no_cluster_of_another_owner(site: Site, tmp_path: Path) -> None:
    def down(home: Site, *, named: bool = False) -> app.Removal | None:
        return app.down(
            home.application,
            provider_name=site.cloud.name,
            cluster_name=site.cluster.title if named else None,
            keep_data=False,
            decide=lambda _removal: True,
        )

    site.up()
    before = site.cloud.state()
    elsewhere = Site(site.cloud, tmp_path / "elsewhere", "mine")
    with pytest.raises(UsageError, match=r"conformance \(owner tester\)") as refused:
        down(elsewhere)
    assert refused.value.remedy is not None
    assert refused.value.remedy.endswith("--cluster conformance")
    elsewhere.up()
    down(elsewhere)
    assert site.cloud.state() == before
    down(elsewhere, named=True)
    assert site.cloud.state() == []


def test_a_manually_deleted_resource_is_recreated(calm: Calm, site: Site) -> None:
    site.up()
    provider = site.application.provider(site.cloud.name)
    drivers = provider.drivers(site.cluster)
    kinds = set()
    for found in provider.search(site.cluster.title):
        if found.kind in kinds:
            continue
        kinds.add(found.kind)
        try:
            drivers[found.kind].delete(found)
        except Exception as error:  # noqa: BLE001 - the cloud's own, of any kind: other things stand on it
            drivers[found.kind].explain(error)
    plan = app.up(site.application, site.cluster, decide=lambda _plan: True)
    assert any(action.step in {PlanStep.CREATE, PlanStep.REPLACE} for action in plan.actions)
    assert site.cloud.kinds() == calm.made
    site.down()
    assert site.cloud.state() == []


@pytest.mark.soak
@pytest.mark.parametrize("command", ["up", "down"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_command_killed_at_any_call_is_recovered(
    calm: Calm, site: Site, command: str, when: str, tally: Tally
) -> None:
    def begin() -> None:
        site.cloud.reset()
        if command == "down":
            site.up()

    begin()
    if site.cloud.ways.can_save:
        site.cloud.save("start")
    deaths = 0
    for call in range(1, len(calm.calls[command]) + 200, STRIDE):
        site.cloud.restore("start") if site.cloud.ways.can_save else begin()
        site.cloud.control(kill=None)
        trial = Site(site.cloud, site.home.root / str(call))
        code = trial.run(command, call=call, when=when)
        assert code in {0, -signal.SIGKILL}, call
        if code == 0:
            break
        deaths += 1
        if call % 3 == 0:
            trial.lose_journal()
        if call % 2:
            trial.up()
            assert site.cloud.kinds() == calm.made, call
        trial.down()
        assert site.cloud.state() == [], call
    tally(f"{site.cloud.name}: {deaths} deaths {when} a call of {command}, all healed, nothing left")
    assert deaths >= len(calm.calls[command]) // 2 // STRIDE


@pytest.mark.soak
def test_every_denied_action_is_named_and_nothing_is_left(calm: Calm, site: Site) -> None:
    for service, action in calm.changes["up"]:
        try:
            refuse(site, calm, service, action)
        except CloudrecError as error:
            raise AssertionError(action) from error
