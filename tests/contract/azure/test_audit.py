"""`leaks` and `down` name what others made beside a cluster, also of types that cloudrec does not know."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import copytree

import pytest

from cloudrec import app
from cloudrec.app.leak_search import LeakSearch
from cloudrec.engine.graph import Observed
from cloudrec.errors import ResourcesRemainError
from cloudrec.providers.base.audit import UNMANAGED
from tests.contract.azure.planted import KINDS, SIZE, Gardener, Planted
from tests.contract.azure.support import Site, fresh
from tests.contract.azure.support_deployer import ACTIONS, Deployer
from tests.sandbox.azure.support import Azure

REGIONS = {"a": "eastus", "b": "westus2", "c": "westeurope"}
FREE = {"firewall", "identity", "key", "reserved", "shutdown-computevm-machine", "stranger", "workspace"}
PRICED = {"machine", "machines", "reserved/three"}  # in every region of the table
PRICED_IN_ONE = {"address", "balancer", "endpoint", "gateway"}  # in the table for eastus alone
SPOT = {"capacity": "spot-first", "zones": ["1"]}
LISTING = "Microsoft.Resources/subscriptions/resources/read"
READS = (
    "Microsoft.Compute/images/read",
    "Microsoft.Compute/virtualMachineScaleSets/read",
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.DevTestLab/schedules/read",
)


def site_of(azure: Azure, folder: Path, title: str) -> Site:
    types = ["Standard_NC4as_T4_v3"]
    return Site(azure, folder, name=title, region=REGIONS[title], instance_types=types)


@pytest.fixture(scope="module")
def sown(process: Azure, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Planted]]:
    """The home of a running cluster in each region, beside planted resources; saved as `sown`."""
    fresh(process)
    folder = tmp_path_factory.mktemp("sown")
    planted = {}
    for title in REGIONS:
        site = site_of(process, folder, title)
        site.up()
        planted[title] = Gardener(site).plant()
    process.ask("POST", "/save", {"name": "sown"})
    return folder, planted


@pytest.fixture
def field(
    azure: Azure, sown: tuple[Path, dict[str, Planted]], tmp_path: Path
) -> tuple[Site, dict[str, Planted]]:
    """The clusters and what is beside them, restored for each test; the site of the first cluster."""
    folder, planted = sown
    azure.ask("POST", "/restore", {"name": "sown"})
    copytree(folder, tmp_path, dirs_exist_ok=True)
    return site_of(azure, tmp_path, "a"), planted


def unmanaged(found: LeakSearch) -> dict[str, Observed]:
    """The resources of a search that no driver manages, by id in lower case."""
    return {leak.found.identity.lower(): leak.found for leak in found.leaks if leak.found.kind == UNMANAGED}


def short(seen: Observed) -> str:
    """A resource's own name."""
    return seen.name.partition(" ")[2]


def lower(identities: Sequence[str]) -> set[str]:
    return {identity.lower() for identity in identities}


def refused(site: Site) -> str:
    """The message of a `down` that leaves resources."""
    with pytest.raises(ResourcesRemainError) as caught:
        site.down()
    assert caught.value.exit_code == 5
    return str(caught.value).lower()


@pytest.mark.slow
def test_leaks_name_each_of_60_resources_in_3_regions_with_its_price(
    field: tuple[Site, dict[str, Planted]],
) -> None:
    site, planted = field
    search = app.leaks(site.application, "azure", everywhere=True)
    found, wanted = unmanaged(search), [each for one in planted.values() for each in one.all]
    named = [identity for identity in wanted if identity.lower() in found]
    assert search.unsearched == ()
    assert len(named) == len(set(wanted)) == KINDS * len(REGIONS)
    # Nothing else is named but what Azure made with these resources.
    implied = lower([each for one in planted.values() for each in one.implied])
    assert found.keys() - lower(wanted) == implied
    rows = [found[each.lower()] for each in wanted]
    for seen in rows:
        is_registry, is_account = "/registries " in seen.name, "/storageAccounts " in seen.name
        in_one = is_registry or short(seen) in PRICED_IN_ONE
        if short(seen) in PRICED or (seen.location == "eastus" and in_one):
            assert (seen.hourly_usd or 0) > 0, seen
        else:
            assert seen.hourly_usd == (0 if is_account or short(seen) in FREE else None), seen
    known = [seen for seen in rows if seen.hourly_usd is not None]
    assert {seen.cluster for seen in rows} == set(REGIONS)
    print(f"{len(named)} of {len(wanted)} named, {len(known)} of them with a price; 0 others")


@pytest.mark.slow
def test_a_search_of_one_region_names_the_resources_of_that_region(
    field: tuple[Site, dict[str, Planted]],
) -> None:
    site, planted = field
    found = unmanaged(app.leaks(site.application, "azure", locations=["westus2"]))
    assert found.keys() == lower([*planted["b"].all, *planted["b"].implied])


@pytest.mark.slow
def test_down_ends_with_exit_code_5_and_names_what_is_left(
    azure: Azure, field: tuple[Site, dict[str, Planted]]
) -> None:
    site, planted = field
    mine = planted["a"]
    message = refused(site)
    left = {entry.rpartition(":")[2].lower() for entry in azure.state()}
    remaining = [identity for identity in mine.all if identity.lower() in left]
    assert lower([*mine.tagged, *mine.bound]) <= lower(remaining)
    assert [identity for identity in remaining if identity.lower() not in message] == []
    # The network with the strangers in it remains, too: Azure does not delete a subnet in use.
    assert "virtual-network/a" in message
    others = [*planted["b"].all, *planted["c"].all]
    assert [identity for identity in others if identity.lower() in message] == []
    first = len(remaining)

    # Without them the group goes, with all that is in it.
    network = azure.client("network")
    azure.done(network.network_interfaces.begin_delete, mine.lab, "stranger", seconds=60)
    azure.done(network.private_endpoints.begin_delete, mine.lab, "endpoint", seconds=60)
    message = refused(site)
    left = {entry.rpartition(":")[2].lower() for entry in azure.state()}
    assert not [identity for identity in left if "/cloudrec-a/" in identity]
    assert [identity for identity in mine.tagged if identity.lower() not in message] == []
    assert "virtual-network/a" not in message
    print(f"{first} of {KINDS} named beside a network in use, then {len(mine.tagged)}")

    reservations = azure.client("compute").capacity_reservations
    azure.done(reservations.begin_delete, mine.lab, "reserved", "three", seconds=60)
    azure.done(azure.client("resource").resource_groups.begin_delete, mine.lab, seconds=600)
    site.down()
    found = app.leaks(site.application, "azure", everywhere=True)
    assert [leak for leak in found.leaks if leak.found.location == "eastus"] == []
    assert unmanaged(found).keys() == lower([*others, *planted["b"].implied, *planted["c"].implied])


def test_a_running_cluster_has_no_unmanaged_resources(azure: Azure, tmp_path: Path) -> None:
    site = Site(azure, tmp_path, **SPOT, settings={"lustre_tib": 8})
    site.up()
    search = app.leaks(site.application, "azure", everywhere=True)
    assert (unmanaged(search), search.unsearched) == ({}, ())
    assert len(search.leaks) > 20


def scale_set(azure: Azure, group: str) -> str:
    """The id of a new scale set of others, with two machines."""
    wish = {
        "location": "eastus",
        "sku": {"name": SIZE, "capacity": 2},
        "properties": {"virtualMachineProfile": {}},
    }
    sets = azure.client("compute").virtual_machine_scale_sets
    return str(azure.done(sets.begin_create_or_update, group, "strangers", wish, seconds=60).id)


def test_of_the_scale_sets_in_the_group_for_nodes_only_those_of_aks_are_managed(standing: Site) -> None:
    made = scale_set(standing.azure, "cloudrec-t-nodes")
    (found,) = unmanaged(app.leaks(standing.application, "azure")).values()
    assert (found.identity, found.cluster, found.location) == (made, "t", "eastus")
    assert (found.hourly_usd or 0) > 0
    standing.down()  # AKS deletes the group with all that is in it


def test_what_a_removed_cluster_left_in_the_group_for_nodes_is_named_with_its_price(
    azure: Azure, site: Site
) -> None:
    azure.control(registered=["*"])
    cluster = azure.id("Microsoft.ContainerService/managedClusters", "cloudrec-old", group="cloudrec-old")
    body = {"location": "eastus", "managedBy": cluster}
    azure.client("resource").resource_groups.create_or_update("cloudrec-old-nodes", body)
    made = scale_set(azure, "cloudrec-old-nodes")
    search = app.leaks(site.application, "azure")
    (found,) = unmanaged(search).values()
    assert (found.identity, found.cluster) == (made, "old")
    assert (found.hourly_usd or 0) > 0
    assert "node-resource-group" in {leak.found.kind for leak in search.leaks}


def test_a_clean_down_leaves_nothing_to_name_while_the_index_still_has_deleted_resources(
    standing: Site,
) -> None:
    azure = standing.azure
    azure.control(lag_s={"resources": 86400})
    standing.down()
    search = app.leaks(standing.application, "azure", everywhere=True)
    assert (search.leaks, search.unsearched) == ((), ())
    listed = list(azure.client("resource").resources.list(filter="tagName eq 'cloudrec-cluster'"))
    assert len(listed) > 10


def test_down_with_kept_data_does_not_name_the_data(standing: Site) -> None:
    standing.down(keep_data=True)
    search = app.leaks(standing.application, "azure")
    kept = {leak.found.kind for leak in search.leaks}
    assert kept == {"resource-group", "storage-account", "container"}


def test_a_missing_permission_is_named_and_the_rest_is_searched(azure: Azure, tmp_path: Path) -> None:
    deployer = Deployer(azure, tmp_path, wide=True)
    deployer.act("up")
    azure.control(enforce_iam=False)
    planted = Gardener(deployer.site).plant()
    azure.control(enforce_iam=True)
    search = searched(deployer)
    # The role has the reads of the types that cloudrec knows; others are listed without being read.
    assert set(search.unsearched) == {
        f"whether resources of type {of_type.lower()} still exist: Azure does not allow {of_type}/read"
        for of_type in ("Microsoft.Insights/components", "Microsoft.Compute/sshPublicKeys")
    }
    assert lower(planted.all) <= unmanaged(search).keys()
    for action in (LISTING, *READS):
        assert action in ACTIONS
        deployer.allow([other for other in ACTIONS if other != action])
        without = searched(deployer)
        assert [text for text in without.unsearched if text.endswith(f"does not allow {action}")], action
        assert lower([*planted.grouped, *planted.bound]) <= unmanaged(without).keys()


def test_a_deployer_of_one_group_finds_its_cluster_and_reads_what_it_could_not_search(
    azure: Azure, tmp_path: Path
) -> None:
    deployer = Deployer(azure, tmp_path)
    deployer.act("up")
    deployer.site = Site(azure, tmp_path / "another home")
    search = searched(deployer)
    assert {"cluster", "gpu-nodes", "storage-account"} <= {leak.found.kind for leak in search.leaks}
    assert any("Microsoft.Network/virtualNetworks/read" in text for text in search.unsearched)


def searched(deployer: Deployer) -> LeakSearch:
    """The result of `leaks` for the deployer."""
    deployer.azure.env.update(deployer.keys)
    try:
        return app.leaks(deployer.site.application, "azure")
    finally:
        deployer.azure.env.update(deployer.owner)


def test_down_reports_a_search_that_the_role_does_not_allow(azure: Azure, tmp_path: Path) -> None:
    deployer = Deployer(azure, tmp_path, wide=True)
    deployer.act("up")
    deployer.allow([action for action in ACTIONS if action != LISTING])
    azure.env.update(deployer.keys)
    try:
        removal = app.down(
            deployer.site.application,
            provider_name="azure",
            cluster_name=deployer.site.cluster.title,
            keep_data=False,
            decide=lambda _removal: True,
        )
    finally:
        azure.env.update(deployer.owner)
    assert removal is not None
    text = f"resources of any type with cloudrec's tag: Azure does not allow {LISTING}"
    assert removal.unsearched == (text,)
    assert azure.state() == deployer.before


def test_the_regions_are_the_physical_ones(site: Site) -> None:
    regions = site.provider.regions()
    assert {"eastus", "westeurope"} <= set(regions)
    assert "global" not in regions
    assert "europe" not in regions
