"""A cluster in another region uses the storage account of the first one: a network rule, roles, and a tag."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.engine.plan import PlanStep
from cloudrec.errors import UsageError
from cloudrec.providers.azure.identity.identity import tags_of
from cloudrec.providers.azure.provider import AzureProvider
from cloudrec.providers.azure.storage import mounts
from cloudrec_contract.layout import run_uri, turns_uri
from cloudrec_contract.objectstore.base import StoreOptions
from cloudrec_contract.objectstore.errors import AccessDeniedError
from cloudrec_contract.objectstore.open import open_store
from cloudrec_contract.objectstore.retries import Patience
from tests.contract.azure.support import Site
from tests.contract.azure.support_deployer import Deployer
from tests.sandbox.azure.support import Azure

EAST, WEST = "eastus", "westus2"
RULE = "storage-rule/west"


def sites(azure: Azure, folder: Path, **more: Any) -> tuple[Site, Site]:
    """A managed cluster in the east, and one in the west that is to use its storage."""
    given: dict[str, Any] = {"managed": True, "access": "auto", "owner": "tester", **more}
    east = Site(azure, folder, name="east", region=EAST, settings={"prefix": "team"}, **given)
    return east, Site(azure, folder, name="west", region=WEST, storage_of="east", **given)


@pytest.fixture
def pair(azure: Azure, tmp_path: Path) -> tuple[Site, Site]:
    """Both clusters, which are up."""
    east, west = sites(azure, tmp_path)
    east.up()
    west.up()
    for site in (east, west):
        site.cluster = app.choose(site.application, provider_name="azure", cluster_name=site.cluster.title)
    azure.advance(600)  # role assignments have taken effect
    return east, west


def account_of(site: Site) -> Any:
    layout = site.provider.layout(site.cluster)
    return site.sdk.storage.storage_accounts.get_properties(layout.storage_group, layout.storage_account)


def groups_let_in(site: Site) -> list[str]:
    """The resource groups of the subnets that the account lets in."""
    rules = account_of(site).network_rule_set.virtual_network_rules
    return sorted(rule.virtual_network_resource_id.split("/")[4].lower() for rule in rules)


@contextmanager
def acting(azure: Azure, site: Site, suffix: str) -> Iterator[None]:
    """Act with an identity of the cluster, by a secret in place of its pod's token."""
    group = site.provider.layout(site.cluster).group
    row = site.sdk.managedidentity.user_assigned_identities.get(group, f"{group}-{suffix}")
    azure.control(clients={row.client_id: {"secret": suffix, "object_id": row.principal_id}})
    with pytest.MonkeyPatch.context() as patch:
        secret = {"AZURE_CLIENT_ID": row.client_id, "AZURE_CLIENT_SECRET": suffix}
        for name, value in {**azure.env, **secret}.items():
            patch.setenv(name, value)
        yield


def store(uri: str) -> Any:
    return open_store(uri, StoreOptions(patience=Patience(attempts=1)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_both_clusters_are_complete_and_name_the_account_of_the_first(
    azure: Azure, pair: tuple[Site, Site]
) -> None:
    east, west = pair
    assert (east.planned(), west.planned()) == ({}, {})
    first, second = (site.provider.layout(site.cluster) for site in pair)
    assert second.storage == first.storage == f"abfs://data@{first.storage_account}.dfs.core.windows.net/team"
    (volume,) = mounts.volumes(second, west.sdk, client_id="id", cache_mb=0)
    assert volume["attributes"]["resourceGroup"] == "cloudrec-east"
    assert account_of(west).tags["cloudrec-used-by-west"] == WEST
    assert groups_let_in(west) == ["cloudrec-east", "cloudrec-west"]
    subnet = west.sdk.network.subnets.get("cloudrec-west", "cloudrec-west", "cloudrec-west-nodes")
    assert [each.service for each in subnet.service_endpoints] == ["Microsoft.Storage.Global"]
    found = west.found()
    assert {RULE, "role-assignment/west-guard-turns", "role-assignment/west-pod-storage"} <= found.keys()
    # The caller has the role on the container already, as the one who created the first cluster.
    assert not {"storage-account/west", "container/west", "storage-role/west"} & found.keys()
    assert RULE not in east.found()
    assert RULE in {seen.key for seen in AzureProvider(west.home, azure.env).search(None)}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_runs_use_the_container_and_keepers_only_take_turns_there(
    azure: Azure, pair: tuple[Site, Site]
) -> None:
    east, west = pair
    storage = west.provider.data_places(west.cluster).storage
    with acting(azure, west, "pod"):
        run = store(run_uri(storage, "r"))
        run.check()
        run.put("data", b"data")
        run.put("pods/p/rank-0.log", b"log")
        assert run.read("data") == b"data"
    for site, number in ((west, 1), (east, 2)):
        with acting(azure, site, "guard"):
            turns, run = store(turns_uri(storage, "r")), store(run_uri(storage, "r"))
            turns.create(f"0000000{number}.json", b"{}")
            assert turns.read(f"0000000{number}.json") == b"{}"
            assert len(turns.children()) == number
            assert run.sizes("pods/") == {"pods/p/rank-0.log": 3}
            assert store(run_uri(storage, "waiting")).sizes("pods/") == {}
            for forbidden in (
                lambda: turns.remove([f"0000000{number}.json"]),  # noqa: B023 - called in this round
                run.children,
                lambda: run.read("pods/p/rank-0.log"),  # noqa: B023
                lambda: run.read("data"),  # noqa: B023
                lambda: run.put("data", b""),  # noqa: B023
            ):
                with pytest.raises(AccessDeniedError):
                    forbidden()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_cluster_keeps_the_rule_and_no_rule_of_others(pair: tuple[Site, Site]) -> None:
    east, west = pair
    layout = east.provider.layout(east.cluster)
    listed = account_of(east).network_rule_set.virtual_network_rules
    rules = {
        "defaultAction": "Deny",
        "ipRules": [{"value": "203.0.113.9", "action": "Allow"}],
        "virtualNetworkRules": [
            {"id": rule.virtual_network_resource_id, "action": "Allow"} for rule in listed
        ],
    }
    update = east.sdk.storage.storage_accounts.update
    update(layout.group, layout.storage_account, {"properties": {"networkAcls": rules}})
    assert east.planned()["storage-account/east"].step is PlanStep.CHANGE
    east.up()
    assert groups_let_in(east) == ["cloudrec-east", "cloudrec-west"]
    # Without its tag, the rule of the other cluster is removed; `up` of that cluster makes both again.
    azure_tags = {name: value for name, value in account_of(east).tags.items() if "used-by" not in name}
    update(layout.group, layout.storage_account, {"tags": azure_tags})
    east.up()
    assert groups_let_in(east) == ["cloudrec-east"]
    assert west.planned()[RULE].step is PlanStep.CREATE
    west.up()
    assert groups_let_in(east) == ["cloudrec-east", "cloudrec-west"]
    assert (east.planned(), west.planned()) == ({}, {})


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_cluster_outlives_the_second_and_not_the_other_way(
    azure: Azure, pair: tuple[Site, Site], tmp_path: Path
) -> None:
    east, west = pair
    with pytest.raises(UsageError, match="whose runs would lose it"):
        east.down()
    elsewhere = Site(azure, tmp_path / "elsewhere", name="east", region=EAST)
    with pytest.raises(UsageError, match="west in westus2"):
        elsewhere.down()
    west.down()
    assert west.found() == {}
    assert "cloudrec-used-by-west" not in account_of(east).tags
    assert groups_let_in(east) == ["cloudrec-east"]
    assert east.planned() == {}
    east.down()
    assert east.found() == {}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_deployer_with_its_role_in_both_groups_makes_and_removes_the_second_cluster(
    azure: Azure, tmp_path: Path
) -> None:
    first = Site(azure, tmp_path, name="first", region=WEST, managed=True)
    first.up()
    deployer = Deployer(azure, tmp_path, region=EAST, storage_of="first", managed=True)
    azure.control(enforce_iam=False)
    deployer.assign_in_group("cloudrec-first")
    azure.advance(3600)
    azure.control(enforce_iam=True)
    try:
        deployer.act("up")
        assert deployer.act("planned") == {}
        # The caller of the first cluster is another one, so this one needs a role on the container.
        assert {"storage-rule/t", "storage-role/t"} <= deployer.site.found().keys()
        deployer.act("down")
    finally:
        azure.control(enforce_iam=False)
    assert deployer.site.found() == {}
    assert groups_let_in(first) == ["cloudrec-first"]
    assert first.planned() == {}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_who_uses_a_storage_by_another_cluster_may_change_its_own_cluster_too(
    azure: Azure, tmp_path: Path
) -> None:
    deployer = Deployer(azure, tmp_path, region=EAST, managed=True)
    try:
        deployer.act("up")
    finally:
        azure.control(enforce_iam=False)
    first = deployer.site  # from here on by another person
    second = Site(azure, tmp_path, name="second", region=WEST, storage_of=first.cluster.title, managed=True)
    second.up()
    assert "storage-role/second" in second.found()
    first.up()
    assert second.planned() == {}
    second.down()
    assert second.found() == {}
    first.up()
    layout = first.provider.layout(first.cluster)
    rows = first.sdk.authorization.role_assignments.list_for_scope(
        layout.container_id, filter=f"principalId eq '{layout.caller.object_id}'"
    )
    described = [tags_of(row.description) for row in rows if row.description]
    assert [tags[TAG_CLUSTER] for tags in described] == ["t"]
