"""Azure ends a budget's nodes at the end in the workflow's tag, which the guard moves and cannot misuse."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from cloudrec.engine.graph import TAG_EXPIRES
from cloudrec.errors import CloudrecError
from cloudrec.providers.azure.api import client, models
from cloudrec.providers.azure.provider import AzureProvider
from cloudrec.spec.models import ClusterSpec
from tests.contract.azure.support import Site, fresh
from tests.contract.azure.support_budget import (
    CLUSTER,
    definition,
    gpu_nodes,
    guard_keys,
    kept_end,
    workflow_id,
)
from tests.sandbox.azure.support import Azure, stand_in

BUDGET = 100.0
FIVE_MINUTES = 300.0
BEFORE = 60.0  # more than a call takes in real time
# Time passes by order, and otherwise as in real time.
BY_ORDER: dict[str, Any] = {
    "speed": 1,
    "real_times": False,
    "durations": {"*": 0.2},
    "rates": {"*": [1e6, 1e6]},
}
ROLE = "Microsoft.Authorization/roleAssignments"


@pytest.fixture(scope="module")
def own() -> Iterator[Azure]:
    """A stand-in with a cluster that has a budget and no guard in it; its clock is virtual."""
    with stand_in() as azure:
        fresh(azure)
        azure.ask("POST", "/save", {"name": "start"})
        azure.control(**BY_ORDER)
        yield azure


@pytest.fixture(scope="module")
def home(own: Azure, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("raised")
    site_of(own, folder).up()
    own.advance(60)  # role assignments have taken effect
    own.ask("POST", "/save", {"name": "raised"})
    return folder


def site_of(azure: Azure, folder: Path, **cluster: Any) -> Site:
    return Site(azure, folder, **{"budget_usd": BUDGET, "zones": ["1"], **cluster})


@pytest.fixture
def azure(own: Azure, home: Path) -> Azure:
    assert home.exists()
    own.ask("POST", "/restore", {"name": "raised"})
    own.control(enforce_iam=False, workflow_faults={})
    return own


@pytest.fixture
def site(azure: Azure, home: Path) -> Site:
    return site_of(azure, home)


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def written(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def pass_until(azure: Azure, at: float) -> None:
    """Let the stand-in's time pass until a moment."""
    left = at - float(azure.ask("GET", "")["virtual_time"])
    assert left > 0
    azure.advance(left)


def tag(site: Site, value: str) -> None:
    """Write the end into the workflow's tag, as the owner."""
    tags = models.resources.Tags(tags={TAG_EXPIRES: value})
    patch = models.resources.TagsPatchResource(operation="Merge", properties=tags)
    site.sdk.resources.tags.begin_update_at_scope(workflow_id(site), patch, polling=False)


def moved(site: Site, **by: float) -> str:
    """Move the end as the guard does, with its identity; return the new end."""
    end = datetime.fromisoformat(kept_end(site)) + timedelta(**by)
    expires = f"{end:%Y-%m-%dT%H:%M:%SZ}"
    keys = guard_keys(site.azure, site)
    site.azure.control(enforce_iam=True)
    provider = AzureProvider(site.home, {**site.azure.env, **keys})
    provider.move_end(site.cluster.model_copy(update={"expires": expires}), ["gpu"])
    site.azure.control(enforce_iam=False)
    assert kept_end(site) == expires
    return expires


@pytest.mark.parametrize("hours", [5.0, -0.5])
def test_gpu_nodes_end_within_five_minutes_of_a_moved_end_without_guard_and_client(
    azure: Azure, site: Site, hours: float
) -> None:
    end = moment(moved(site, hours=hours))
    pass_until(azure, end - BEFORE)
    assert gpu_nodes(site) == 1
    pass_until(azure, end + FIVE_MINUTES)
    assert gpu_nodes(site) == 0


def test_a_moved_end_is_no_difference_and_another_budget_moves_tag_and_definition(
    azure: Azure, site: Site, home: Path
) -> None:
    ordered = definition(site)["parameters"]["end"]["defaultValue"]
    assert ordered == kept_end(site)
    expires = moved(site, hours=5)
    assert definition(site)["parameters"]["end"]["defaultValue"] == ordered
    assert site.planned() == {}
    site.up()
    assert kept_end(site) == expires
    other = site_of(azure, home, budget_usd=BUDGET * 2)
    assert list(other.planned()) == ["end-schedule/t"]
    other.up()
    assert other.planned() == {}
    assert kept_end(site) == definition(site)["parameters"]["end"]["defaultValue"] != expires


def test_one_failed_read_after_the_definitions_end_does_not_end_the_nodes_early(
    azure: Azure, site: Site
) -> None:
    ordered, end = moment(kept_end(site)), moment(moved(site, hours=5))
    pass_until(azure, ordered + 600)
    # A run's first read with its repetitions, a read that is never repeated, one that answers too late.
    for statuses in ([503] * 5, [403], [404], [408] * 5, [429] * 5):
        azure.control(workflow_faults={"GET": statuses})
        azure.advance(1200)
        assert azure.ask("GET", "")["workflow_faults"] == {"GET": []}
        assert gpu_nodes(site) == 1
    pass_until(azure, end + FIVE_MINUTES)
    assert gpu_nodes(site) == 0


def test_the_definitions_end_counts_while_the_tag_cannot_be_read(azure: Azure, site: Site) -> None:
    ordered = moment(kept_end(site))
    moved(site, hours=5)
    rows = site.sdk.authorization.role_assignments.list_for_scope(workflow_id(site))
    (reader,) = [row.id for row in rows if ":role-assignment/t-end-look:" in (row.description or "")]
    site.sdk.authorization.role_assignments.delete_by_id(reader)
    pass_until(azure, ordered - BEFORE)
    assert gpu_nodes(site) == 1
    pass_until(azure, ordered + FIVE_MINUTES)
    assert gpu_nodes(site) == 0


@pytest.mark.parametrize("value", ["", "soon", "zzzz-12-01T00:00:00Z"])
def test_the_definitions_end_counts_if_the_tag_is_no_time(azure: Azure, site: Site, value: str) -> None:
    ordered = moment(kept_end(site))
    tag(site, value)
    pass_until(azure, ordered - BEFORE)
    assert gpu_nodes(site) == 1
    pass_until(azure, ordered + FIVE_MINUTES)
    assert gpu_nodes(site) == 0


def test_a_ttl_ends_the_nodes_whatever_the_tag_is(own: Azure, tmp_path: Path) -> None:
    own.ask("POST", "/restore", {"name": "start"})
    fresh(own)
    own.control(**BY_ORDER)
    site = site_of(own, tmp_path, ttl="1h")
    site.up()
    own.advance(60)
    end = moment(moved(site, hours=9)) - 9 * 3600
    pass_until(own, end + FIVE_MINUTES)
    assert gpu_nodes(site) == 0


def refused(call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    with pytest.raises(HttpResponseError, match="AuthorizationFailed"):
        call(*arguments, **options)


def test_the_guard_can_change_the_workflows_tags_and_nothing_else(azure: Azure, site: Site) -> None:
    moved(site, hours=1)
    row = site.sdk.resources.resources.get_by_id(workflow_id(site), api_version="2019-05-01").as_dict()
    changed = {key: row[key] for key in ("location", "tags", "identity", "properties")}
    group = workflow_id(site).partition("/providers/")[0]
    keys = guard_keys(azure, site)
    azure.control(enforce_iam=True)
    guard = client.Azure({**azure.env, **keys})
    calls = guard.resources.resources
    refused(calls.get_by_id, workflow_id(site), api_version="2019-05-01")
    refused(calls.begin_delete_by_id, workflow_id(site), api_version="2019-05-01")
    refused(calls.begin_create_or_update_by_id, workflow_id(site), changed, api_version="2019-05-01")
    tags = models.resources.Tags(tags={TAG_EXPIRES: "2099-01-01T00:00:00Z"})
    patch = models.resources.TagsPatchResource(operation="Merge", properties=tags)
    cluster = f"{group}/providers/Microsoft.ContainerService/managedClusters/{CLUSTER}"
    for scope in (group, cluster):
        refused(guard.resources.tags.begin_update_at_scope, scope, patch)
    other = site.cluster.model_copy(update={"name": "other", "expires": written(time.time())})
    with pytest.raises(CloudrecError):
        AzureProvider(site.home, {**azure.env, **keys}).move_end(other, ["gpu"])
    azure.control(enforce_iam=False)


def test_the_guard_knows_spot_prices(azure: Azure, site: Site) -> None:
    azure.control(enforce_iam=True, spot_price_factor={"*": 0.5})
    provider = AzureProvider(site.home, {**azure.env, **guard_keys(azure, site)})
    found = provider.spot_now(site.cluster, ["Standard_NC64as_T4_v3"])
    azure.control(enforce_iam=False)
    assert {price.capacity: price.usd for price in found} == {"spot": 2.176, "on-demand": 4.352}


def test_the_reads_cost_what_the_price_list_has(azure: Azure, site: Site) -> None:
    found = {seen.kind: seen for seen in site.provider.search("t")}
    assert found["end-schedule"].hourly_usd == pytest.approx(120 * 0.000025)
    (asked,) = [each for each in resources(site) if each.kind == "end-schedule"]
    assert asked.hourly_usd == found["end-schedule"].hourly_usd
    azure.control(bill=True)
    azure.advance(3600)
    bill = azure.ask("GET", "/bill")["lines"]
    assert [row["usd"] for row in bill if row["kind"] == "Microsoft.Logic/workflows"] == [
        pytest.approx(120 * 0.000025, rel=0.05)  # from the first run on
    ]
    azure.control(bill=False)


def resources(site: Site) -> list[Any]:
    cluster: ClusterSpec = site.cluster.model_copy(update={"expires": kept_end(site)})
    return [replace(each) for each in site.provider.resources(cluster)]


def test_down_removes_the_workflow_and_its_roles(azure: Azure, site: Site) -> None:
    assert [each for each in azure.state() if each.startswith("logic:")]
    site.down()
    assert [each for each in azure.state() if "logic" in each.lower() or ROLE.lower() in each.lower()] == []
    assert azure.state() == []
