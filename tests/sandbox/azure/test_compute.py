"""Sizes, quotas, capacity, placement, disks and prices as in Azure; orphaned resources of controllers."""

from __future__ import annotations

import json
import ssl
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from tests.sandbox.azure.support import GROUP, LOCATION, Azure, refused
from tests.sandbox.azure.support_network import make_interface, make_network, make_subnet

_SIZE = "Standard_ND96isr_H100_v5"
_FAMILY = "standardNDSH100v5Family"


@pytest.fixture(autouse=True)
def _group(azure: Azure) -> None:
    azure.group()


@pytest.fixture
def compute(azure: Azure) -> Any:
    return azure.client("compute")


def _sizes(compute: Any, location: str = LOCATION) -> dict[str, Any]:
    return {row.name: row for row in compute.resource_skus.list(filter=f"location eq '{location}'")}


def test_sizes_have_a_family_zones_and_capabilities(compute: Any) -> None:
    found = _sizes(compute)[_SIZE]
    facts = {each.name: each.value for each in found.capabilities}
    assert (found.family, sorted(found.location_info[0].zones)) == (_FAMILY, ["1", "2"])
    assert (facts["vCPUs"], facts["GPUs"], facts["RdmaEnabled"]) == ("96", "8", "True")
    assert _SIZE not in _sizes(compute, "westus")
    assert _sizes(compute, "westus3")[_SIZE].locations == ["WestUS3"]
    assert {row.resource_type for row in _sizes(compute).values()} > {"virtualMachines"}


def test_a_size_can_be_restricted_in_a_region_or_a_zone(azure: Azure, compute: Any) -> None:
    azure.control(
        restrictions={
            f"{_SIZE}/eastus": "NotAvailableForSubscription",
            "Standard_NC24ads_A100_v4/eastus-2": "NotAvailableForSubscription",
        }
    )
    found = _sizes(compute)
    (whole,), (zonal,) = found[_SIZE].restrictions, found["Standard_NC24ads_A100_v4"].restrictions
    assert (whole.type, whole.reason_code) == ("Location", "NotAvailableForSubscription")
    assert (zonal.type, zonal.restriction_info.zones) == ("Zone", ["2"])


def test_quotas_and_sizes_spell_families_differently(azure: Azure, compute: Any) -> None:
    rows = {row.name.value: row.limit for row in compute.usage.list(LOCATION)}
    assert (rows["cores"], rows["lowPriorityCores"], rows["Standard NDASv4_A100 Family"]) == (10, 3, 0)
    family = _sizes(compute)["Standard_ND96asr_v4"].family
    assert family not in rows
    assert family.lower() in {name.lower().replace(" ", "") for name in rows}
    azure.control(quotas={"cores": 200, f"eastus/{_FAMILY}": 96})
    here, there = (
        {row.name.value: row.limit for row in compute.usage.list(at)} for at in (LOCATION, "westus3")
    )
    assert (here["cores"], here[_FAMILY], there["cores"], there[_FAMILY]) == (200, 96, 200, 0)


def _reserve(azure: Azure, size: str = "Standard_D4s_v5", count: int = 1, zone: str = "1") -> Any:
    groups = azure.client("compute").capacity_reservation_groups
    groups.create_or_update(GROUP, "held", {"location": LOCATION, "zones": ["1", "2"]})
    body = {"location": LOCATION, "zones": [zone], "sku": {"name": size, "capacity": count}}
    reservations = azure.client("compute").capacity_reservations
    return azure.begin(reservations.begin_create_or_update, GROUP, "held", "one", body)


def test_reserved_machines_count_against_the_quota(azure: Azure, compute: Any) -> None:
    with refused("OperationNotAllowed", "Current Limit: 10", "Additional Required: 12", status=409):
        _reserve(azure, count=3)
    _reserve(azure, count=2)
    used = {row.name.value: row.current_value for row in compute.usage.list(LOCATION)}
    assert (used["cores"], used["standardDSv5Family"]) == (8, 8)
    azure.advance(60)
    with refused("OperationNotAllowed", status=409):
        compute.capacity_reservation_groups.begin_delete(GROUP, "held")
    azure.done(compute.capacity_reservations.begin_delete, GROUP, "held", "one", seconds=60)
    azure.done(compute.capacity_reservation_groups.begin_delete, GROUP, "held", seconds=60)
    used = {row.name.value: row.current_value for row in compute.usage.list(LOCATION)}
    assert used["cores"] == 0


def test_capacity_is_limited_per_zone(azure: Azure) -> None:
    azure.control(capacity={"Standard_D4s_v5/eastus-1/on-demand": 1})
    with refused("ZonalAllocationFailed", status=409):
        _reserve(azure, count=2)
    _reserve(azure, count=1)
    assert azure.control()["capacity"] == {"standard_d4s_v5/eastus-1/on-demand": 0}


@pytest.mark.parametrize(("size", "zone"), [(_SIZE, "3"), ("Standard_ND96isr_H200_v5", "1")])
def test_an_unknown_size_is_refused(azure: Azure, size: str, zone: str) -> None:
    azure.control(quotas={"cores": 200, _FAMILY: 200})
    groups = azure.client("compute").capacity_reservation_groups
    groups.create_or_update(GROUP, "held", {"location": LOCATION, "zones": ["1", "2", "3"]})
    body = {"location": LOCATION, "zones": [zone], "sku": {"name": size, "capacity": 1}}
    with refused("SkuNotAvailable", size, status=409):
        azure.client("compute").capacity_reservations.begin_create_or_update(GROUP, "held", "one", body)


def test_the_zone_of_a_placement_group_is_immutable(compute: Any) -> None:
    groups = compute.proximity_placement_groups
    body: dict[str, Any] = {
        "location": LOCATION,
        "zones": ["1"],
        "properties": {"intent": {"vmSizes": ["Standard_NC24ads_A100_v4"]}},
    }
    groups.create_or_update(GROUP, "near", body)
    with refused("PropertyChangeNotAllowed", "zones", status=409):
        groups.create_or_update(GROUP, "near", {**body, "zones": ["2"]})
    with refused("InvalidParameter", "one zone", status=400):
        groups.create_or_update(GROUP, "far", {**body, "zones": ["1", "2"]})
    groups.delete(GROUP, "near")


def test_a_placement_group_has_a_zone_only_with_the_sizes_to_expect(compute: Any) -> None:
    groups = compute.proximity_placement_groups
    with refused("InvalidParameter", "only when an intent", status=400):
        groups.create_or_update(GROUP, "near", {"location": LOCATION, "zones": ["1"]})
    groups.create_or_update(GROUP, "near", {"location": LOCATION})
    groups.delete(GROUP, "near")
    body = {"location": LOCATION, "properties": {"intent": {"vmSizes": ["Standard_X"]}}}
    with refused("OverconstrainedZonalAllocationRequest", "Standard_X", status=409):
        groups.create_or_update(GROUP, "near", body)


def test_creating_a_disk_takes_time_and_disks_never_shrink(azure: Azure, compute: Any) -> None:
    properties: dict[str, Any] = {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8}
    body = {"location": LOCATION, "properties": properties}
    azure.done(compute.disks.begin_create_or_update, GROUP, "one", body, seconds=60)
    assert compute.disks.get(GROUP, "one").properties.disk_state == "Unattached"
    properties["diskSizeGB"] = 4
    with refused("OperationNotAllowed", "resized", status=409):
        compute.disks.begin_create_or_update(GROUP, "one", body)


def _prices(azure: Azure, filter_: str) -> dict[str, Any]:
    address = f"{azure.env['AZURE_RETAIL_PRICES_URL']}?$filter={quote(filter_)}"
    tls = ssl.create_default_context(cafile=azure.env["AZURE_CA_BUNDLE"])
    with urlopen(address, timeout=180, context=tls) as answer:  # noqa: S310 - the stand-in's own address
        told: dict[str, Any] = json.load(answer)
    return told


def test_the_price_list_needs_no_token_and_contains_unrelated_prices(azure: Azure) -> None:
    told = _prices(
        azure,
        f"serviceName eq 'Virtual Machines' and priceType eq 'Consumption' "
        f"and armRegionName eq 'eastus' and (armSkuName eq '{_SIZE}')",
    )
    rows = {(row["meterName"], "Windows" in row["productName"]): row["retailPrice"] for row in told["Items"]}
    assert rows == {
        ("ND96isr H100 v5", False): 98.32,
        ("ND96isr H100 v5", True): 147.48,
        ("ND96isr H100 v5 Spot", False): 18.1695,
        ("ND96isr H100 v5 Low Priority", False): 39.328,
    }
    azure.control(spot_price_factor={_SIZE: 0.5})
    told = _prices(
        azure, f"armSkuName eq '{_SIZE}' and contains(meterName, 'Spot') and armRegionName eq 'eastus'"
    )
    assert [row["retailPrice"] for row in told["Items"]] == [49.16]


@pytest.mark.parametrize("text", ["armSkuName is 'x'", "type eq 'Consumption'"])
def test_an_invalid_price_filter_is_refused(azure: Azure, text: str) -> None:
    with pytest.raises(HTTPError) as caught:
        _prices(azure, text)
    caught.value.close()
    assert caught.value.code == 400


def test_controllers_leave_orphaned_resources(azure: Azure, compute: Any) -> None:
    make_network(azure)
    make_subnet(azure)
    kinds = [
        "disk",
        "load-balancer",
        "network-interface",
        "role-assignment",
        "private-dns-zone",
        "log-workspace",
    ]
    azure.control(leave={"group": GROUP, "cluster": "one", "kinds": kinds})
    (disk,) = compute.disks.list_by_resource_group(GROUP)
    assert disk.tags["k8s-azure-created-by"] == "kubernetes-azure-dd"
    network = azure.client("network")
    (address,) = network.public_ip_addresses.list(GROUP)
    with refused("PublicIPAddressCannotBeDeleted", "loadBalancers", status=400):
        network.public_ip_addresses.begin_delete(GROUP, address.name)
    with refused("InUseSubnetCannotBeDeleted", status=400):
        network.virtual_networks.begin_delete(GROUP, "net")
    azure.done(azure.client("resource").resource_groups.begin_delete, GROUP)
    assert azure.state() == []


@pytest.mark.parametrize(
    "wish",
    [
        {"quotas": {"nothing": 1}},
        {"capacity": {"Standard_None/eastus-1/spot": 0}},
        {"capacity": {"Standard_D4s_v5/eastus-1": 0}},
        {"restrictions": {"Standard_D4s_v5/nowhere": "QuotaId"}},
        {"leave": {"group": "none", "kinds": ["disk"]}},
        {"leave": {"group": GROUP, "kinds": ["dust"]}},
        {"foreign_names": {"disks": []}},
        {"lustre_outcome": "Fine"},
        {"spot_price_factor": {"Standard_None": 1}},
    ],
)
def test_invalid_control_requests_are_refused(azure: Azure, wish: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"there (is|are)|is not|is no|none of"):
        azure.control(**wish)


def test_a_machine_takes_an_interface_and_leaves_it_with_its_disk(azure: Azure, compute: Any) -> None:
    make_network(azure)
    make_subnet(azure)
    nic = make_interface(azure)
    size = "Standard_D4s_v5"
    wish: dict[str, Any] = {
        "location": LOCATION,
        "properties": {
            "hardwareProfile": {"vmSize": size},
            "storageProfile": {"osDisk": {"createOption": "FromImage"}},
            "networkProfile": {"networkInterfaces": [{"id": nic.id}]},
        },
    }
    machine = azure.done(compute.virtual_machines.begin_create_or_update, GROUP, "one", wish, seconds=60)
    interfaces = azure.client("network").network_interfaces
    assert interfaces.get(GROUP, nic.name).virtual_machine.id == machine.id
    (disk,) = compute.disks.list_by_resource_group(GROUP)
    assert (disk.managed_by, disk.disk_state) == (machine.id, "Attached")
    with refused("NicInUse"):
        compute.virtual_machines.begin_create_or_update(GROUP, "two", wish)
    with refused("NicInUse"):
        interfaces.begin_delete(GROUP, nic.name)
    azure.done(compute.virtual_machines.begin_delete, GROUP, "one", seconds=60)
    assert interfaces.get(GROUP, nic.name).virtual_machine is None
    (disk,) = compute.disks.list_by_resource_group(GROUP)
    assert (disk.managed_by, disk.disk_state) == (None, "Unattached")
    wish["properties"]["hardwareProfile"]["vmSize"] = "Standard_D5s_v9"
    with refused("InvalidParameter", "Standard_D5s_v9"):
        compute.virtual_machines.begin_create_or_update(GROUP, "one", wish)


def test_an_image_needs_a_disk_or_a_snapshot_in_its_region(azure: Azure, compute: Any) -> None:
    copy = {"createOption": "Copy", "sourceResourceId": azure.id("Microsoft.Compute/disks", "none")}
    with refused("NotFound", status=404):
        wish = {"location": LOCATION, "properties": {"creationData": copy}}
        compute.snapshots.begin_create_or_update(GROUP, "copy", wish)
    empty = {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8}
    disk = azure.done(
        compute.disks.begin_create_or_update,
        GROUP,
        "disk",
        {"location": LOCATION, "properties": empty},
        seconds=60,
    )
    copy["sourceResourceId"] = disk.id
    wish = {"location": LOCATION, "properties": {"creationData": copy}}
    snapshot = azure.done(compute.snapshots.begin_create_or_update, GROUP, "copy", wish, seconds=60)
    assert snapshot.disk_size_gb == 8
    system = {"osType": "Linux", "osState": "Generalized", "snapshot": {"id": snapshot.id}}
    image = {"location": "westus2", "properties": {"storageProfile": {"osDisk": system}}}
    with refused("BadRequest", "westus2"):
        compute.images.begin_create_or_update(GROUP, "image", image)


def test_machines_of_a_scale_set_count_against_the_quota(azure: Azure, compute: Any) -> None:
    sets = compute.virtual_machine_scale_sets
    wish: dict[str, Any] = {
        "location": LOCATION,
        "sku": {"name": "Standard_D4s_v5", "capacity": 3},
        "properties": {"virtualMachineProfile": {}},
    }
    with refused("OperationNotAllowed", "quota", status=409):
        sets.begin_create_or_update(GROUP, "machines", wish)
    wish["sku"]["capacity"] = 2
    made = azure.done(sets.begin_create_or_update, GROUP, "machines", wish, seconds=60)
    assert made.sku.capacity == 2
