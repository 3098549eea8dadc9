"""Networks, subnets, firewalls, public addresses and NAT gateways refuse what Azure refuses."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from tests.sandbox.azure.support import GROUP, LOCATION, Azure, refused
from tests.sandbox.azure.support_network import (
    NETWORK,
    SUBNET,
    finish,
    make_address,
    make_interface,
    make_network,
    make_subnet,
    put_nat,
    put_subnet,
)


@pytest.fixture
def networks(azure: Azure) -> Any:
    azure.group()
    return azure.client("network")


def test_a_network_takes_time_to_create_and_lists_its_subnets(azure: Azure, networks: Any) -> None:
    body = {"location": LOCATION, "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}}
    poller = azure.begin(networks.virtual_networks.begin_create_or_update, GROUP, NETWORK, body)
    assert networks.virtual_networks.get(GROUP, NETWORK).properties.provisioning_state == "Creating"
    finish(azure, poller)
    make_subnet(azure)
    found = networks.virtual_networks.get(GROUP, NETWORK)
    assert found.properties.provisioning_state == "Succeeded"
    assert [subnet.name for subnet in found.properties.subnets] == [SUBNET]
    assert [subnet.name for subnet in networks.subnets.list(GROUP, NETWORK)] == [SUBNET]


def test_a_second_write_in_a_network_is_a_conflict(azure: Azure, networks: Any) -> None:
    make_network(azure)
    first = put_subnet(azure)
    with refused("AnotherOperationInProgress", status=409):
        put_subnet(azure, "other", "10.0.1.0/24")
    with refused("AnotherOperationInProgress", status=409):
        networks.subnets.begin_delete(GROUP, NETWORK, SUBNET)
    assert networks.virtual_networks.get(GROUP, NETWORK).properties.provisioning_state == "Updating"
    finish(azure, first)
    assert networks.virtual_networks.get(GROUP, NETWORK).properties.provisioning_state == "Succeeded"
    make_subnet(azure, "other", "10.0.1.0/24")


def test_a_network_with_a_write_in_progress_is_locked(azure: Azure, networks: Any) -> None:
    body = {"location": LOCATION, "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}}
    azure.begin(networks.virtual_networks.begin_create_or_update, GROUP, NETWORK, body)
    with refused("RetryableErrorDueToAnotherOperation", status=429):
        networks.virtual_networks.begin_create_or_update(GROUP, NETWORK, body)


def test_a_subnet_with_an_interface_cannot_be_deleted(azure: Azure, networks: Any) -> None:
    make_network(azure)
    make_subnet(azure)
    make_interface(azure)
    shown = networks.subnets.get(GROUP, NETWORK, SUBNET).properties.ip_configurations
    assert len(shown) == 1
    with refused("InUseSubnetCannotBeDeleted", "nic", status=400):
        networks.subnets.begin_delete(GROUP, NETWORK, SUBNET)
    with refused("InUseSubnetCannotBeDeleted", status=400):
        networks.virtual_networks.begin_delete(GROUP, NETWORK)
    azure.done(networks.network_interfaces.begin_delete, GROUP, "nic", seconds=60)
    azure.done(networks.virtual_networks.begin_delete, GROUP, NETWORK, seconds=60)
    with pytest.raises(ResourceNotFoundError):
        networks.virtual_networks.get(GROUP, NETWORK)


def test_a_put_deletes_omitted_subnets(azure: Azure, networks: Any) -> None:
    make_network(azure)
    make_subnet(azure)
    make_subnet(azure, "other", "10.0.1.0/24")
    make_network(azure, subnets=[{"name": SUBNET, "properties": {"addressPrefix": "10.0.0.0/24"}}])
    assert [subnet.name for subnet in networks.subnets.list(GROUP, NETWORK)] == [SUBNET]
    make_interface(azure)
    with refused("InUseSubnetCannotBeDeleted", status=400):
        make_network(azure)


def test_tags_of_subnets_can_be_changed(azure: Azure, networks: Any) -> None:
    make_network(azure)
    make_subnet(azure)
    networks.virtual_networks.update_tags(GROUP, NETWORK, {"tags": {"a": "b"}})
    found = networks.virtual_networks.get(GROUP, NETWORK)
    assert found.tags == {"a": "b"}
    assert [subnet.name for subnet in found.properties.subnets] == [SUBNET]


@pytest.mark.parametrize(
    ("prefix", "code"),
    [
        ("10.1.0.0/24", "NetcfgSubnetRangeOutsideVnet"),
        ("10.0.0.128/25", "NetcfgSubnetRangesOverlap"),
        ("10.0.2.1/24", "InvalidCIDRNotation"),
        ("ten", "InvalidAddressPrefixFormat"),
        ("10.0.2.0/30", "NetcfgSubnetRangeTooSmall"),
    ],
)
def test_a_subnet_must_be_within_its_network(azure: Azure, networks: Any, prefix: str, code: str) -> None:
    make_network(azure)
    make_subnet(azure)
    with refused(code, status=400):
        put_subnet(azure, "other", prefix)
    assert len(list(networks.subnets.list(GROUP, NETWORK))) == 1


@pytest.mark.usefixtures("networks")
@pytest.mark.parametrize("services", [["Storage", "Storage.Global"], ["KeyVault", "KeyVault"]])
def test_a_subnet_has_one_endpoint_to_a_service(azure: Azure, services: list[str]) -> None:
    """Storage is one service, whether in its own region or in all."""
    make_network(azure)
    wanted = [{"service": f"Microsoft.{name}"} for name in services]
    with refused("SubnetHasConflictingServiceEndpoints", *services, status=400):
        make_subnet(azure, serviceEndpoints=wanted)
    rows = [{"name": "a", "properties": {"addressPrefix": "10.0.0.0/24", "serviceEndpoints": wanted}}]
    with refused("SubnetHasConflictingServiceEndpoints", status=400):
        make_network(azure, subnets=rows)


def test_a_subnet_can_reference_only_ready_resources(azure: Azure, networks: Any) -> None:
    make_network(azure)
    nat = azure.id("Microsoft.Network/natGateways", "nat")
    with refused("InvalidResourceReference", "nat", status=400):
        put_subnet(azure, natGateway={"id": nat})
    poller = put_nat(azure)
    with refused("ReferencedResourceNotProvisioned", status=409):
        put_subnet(azure, natGateway={"id": nat})
    finish(azure, poller)
    make_subnet(azure, natGateway={"id": nat})
    assert networks.nat_gateways.get(GROUP, "nat").properties.subnets[0].id.endswith(SUBNET)


def test_a_put_of_a_subnet_detaches_omitted_resources(azure: Azure, networks: Any) -> None:
    make_network(azure)
    finish(azure, put_nat(azure))
    make_subnet(azure, natGateway={"id": azure.id("Microsoft.Network/natGateways", "nat")})
    make_subnet(azure)
    assert networks.subnets.get(GROUP, NETWORK, SUBNET).properties.nat_gateway is None


def test_a_nat_gateway_is_blocked_by_its_subnets_and_blocks_its_address(azure: Azure, networks: Any) -> None:
    make_network(azure)
    address = make_address(azure)
    finish(azure, put_nat(azure, addresses=(address.id,)))
    make_subnet(azure, natGateway={"id": azure.id("Microsoft.Network/natGateways", "nat")})
    with refused("InUseNatGatewayCannotBeDeleted", SUBNET, status=400):
        networks.nat_gateways.begin_delete(GROUP, "nat")
    with refused("PublicIPAddressCannotBeDeleted", "nat", status=400):
        networks.public_ip_addresses.begin_delete(GROUP, "ip")
    with refused("PublicIPAddressInUse", status=400):
        put_nat(azure, "second", addresses=(address.id,))
    letting_go = put_subnet(azure)
    with refused("InUseNatGatewayCannotBeDeleted", SUBNET, status=400):
        networks.nat_gateways.begin_delete(GROUP, "nat")
    finish(azure, letting_go)
    deletion = azure.begin(networks.nat_gateways.begin_delete, GROUP, "nat")
    with refused("PublicIPAddressCannotBeDeleted"):
        networks.public_ip_addresses.begin_delete(GROUP, "ip")
    finish(azure, deletion)
    azure.done(networks.public_ip_addresses.begin_delete, GROUP, "ip", seconds=60)


def test_a_security_group_is_blocked_by_its_subnets(azure: Azure, networks: Any) -> None:
    make_network(azure)
    azure.done(
        networks.network_security_groups.begin_create_or_update,
        GROUP,
        "nsg",
        {"location": LOCATION},
        seconds=60,
    )
    make_subnet(
        azure, networkSecurityGroup={"id": azure.id("Microsoft.Network/networkSecurityGroups", "nsg")}
    )
    with refused("InUseNetworkSecurityGroupCannotBeDeleted", SUBNET, status=400):
        networks.network_security_groups.begin_delete(GROUP, "nsg")
    make_subnet(azure)
    azure.done(networks.network_security_groups.begin_delete, GROUP, "nsg", seconds=60)


def test_the_rules_of_a_security_group_have_unique_priorities(networks: Any) -> None:
    rule = {
        "protocol": "*",
        "sourcePortRange": "*",
        "destinationPortRange": "*",
        "sourceAddressPrefix": "*",
        "destinationAddressPrefix": "*",
        "access": "Allow",
        "direction": "Inbound",
    }
    for priorities, code in (((100, 100), "SecurityRuleConflict"), ((99,), "SecurityRuleInvalidPriority")):
        rules = [
            {"name": f"r{at}", "properties": {**rule, "priority": each}} for at, each in enumerate(priorities)
        ]
        body = {"location": LOCATION, "properties": {"securityRules": rules}}
        with refused(code, status=400):
            networks.network_security_groups.begin_create_or_update(GROUP, "nsg", body)


@pytest.mark.parametrize(
    ("sku", "method", "code"),
    [
        ("Basic", "Dynamic", "IPv4BasicSkuPublicIpCountLimitReached"),
        ("Standard", "Dynamic", "StandardSkuPublicIPAddressesMustBeStatic"),
    ],
)
def test_a_public_address_is_standard_and_static(networks: Any, sku: str, method: str, code: str) -> None:
    body = {
        "location": LOCATION,
        "sku": {"name": sku},
        "properties": {"publicIPAllocationMethod": method},
    }
    with refused(code, status=400):
        networks.public_ip_addresses.begin_create_or_update(GROUP, "ip", body)


def test_addresses_have_a_quota(azure: Azure, networks: Any) -> None:
    azure.control(quotas={"StandardSkuPublicIpAddresses": 1})
    make_address(azure)
    with refused("PublicIPCountLimitReached", "1", status=400):
        make_address(azure, "second")
    make_address(azure)  # the same again is no other
    usages = {row.name.value: row for row in networks.usages.list(LOCATION)}
    assert (
        usages["StandardSkuPublicIpAddresses"].current_value,
        usages["StandardSkuPublicIpAddresses"].limit,
    ) == (
        1,
        1,
    )


def test_a_new_resource_is_visible_intermittently(azure: Azure, networks: Any) -> None:
    azure.control(lag_s={"reads": 30})
    azure.begin(networks.network_security_groups.begin_create_or_update, GROUP, "nsg", {"location": LOCATION})
    path = f"{azure.id('Microsoft.Network/networkSecurityGroups', 'nsg')}?api-version=2026-03-01"
    assert {azure.raw("GET", path)[0] for _ in range(4)} == {200, 404}
    azure.advance(30)
    assert {azure.raw("GET", path)[0] for _ in range(4)} == {200}


def test_a_failed_operation_leaves_a_failed_resource(azure: Azure, networks: Any) -> None:
    azure.control(
        faults=[
            {
                "kind": "async",
                "service": "network",
                "action": "Put natGateways",
                "code": "InternalServerError",
                "message": "no luck",
            }
        ]
    )
    poller = put_nat(azure)
    azure.advance(60)
    with pytest.raises(HttpResponseError, match="no luck"):
        poller.result(30)
    assert networks.nat_gateways.get(GROUP, "nat").properties.provisioning_state == "Failed"


def test_a_linked_dns_zone_cannot_be_deleted(azure: Azure) -> None:
    azure.group()
    network = make_network(azure)
    zone = azure.id("Microsoft.Network/privateDnsZones", "one.private")
    api = "?api-version=2024-06-01"
    azure.raw("PUT", f"{zone}{api}", {"location": "global"})
    azure.advance(60)
    link = {"location": "global", "properties": {"virtualNetwork": {"id": network.id}}}
    status, _, _ = azure.raw("PUT", f"{zone}/virtualNetworkLinks/one{api}", link)
    assert status == 202
    azure.advance(60)
    status, _, told = azure.raw("DELETE", f"{zone}{api}")
    assert (status, told["error"]["code"]) == (409, "CannotDeleteResource")
    azure.raw("DELETE", f"{zone}/virtualNetworkLinks/one{api}")
    azure.advance(60)
    assert azure.raw("DELETE", f"{zone}{api}")[0] == 202


def test_a_private_endpoint_has_an_interface_in_its_subnet(azure: Azure, networks: Any) -> None:
    azure.control(registered=["Microsoft.Storage"])
    make_network(azure)
    subnet = make_subnet(azure)
    connection: dict[str, Any] = {
        "name": "blob",
        "properties": {"privateLinkServiceId": subnet.id + "-none", "groupIds": ["blob"]},
    }
    properties = {"subnet": {"id": subnet.id}, "privateLinkServiceConnections": [connection]}
    wish = {"location": LOCATION, "properties": properties}
    with refused("PrivateLinkServiceNotFound"):
        networks.private_endpoints.begin_create_or_update(GROUP, "endpoint", wish)
    account = azure.done(
        azure.client("storage").storage_accounts.begin_create,
        GROUP,
        "endpointed",
        {"location": LOCATION, "sku": {"name": "Standard_LRS"}, "kind": "StorageV2"},
        seconds=60,
    )
    connection["properties"]["privateLinkServiceId"] = account.id
    made = azure.done(networks.private_endpoints.begin_create_or_update, GROUP, "endpoint", wish, seconds=60)
    (interface,) = networks.network_interfaces.list(GROUP)
    assert [each.id for each in made.network_interfaces] == [interface.id]
    assert interface.private_endpoint.id == made.id
    found = networks.subnets.get(GROUP, NETWORK, SUBNET)
    assert [each.id for each in found.private_endpoints] == [made.id]
    assert [each.id.startswith(interface.id) for each in found.ip_configurations] == [True]
    azure.done(networks.private_endpoints.begin_delete, GROUP, "endpoint", seconds=60)
    assert list(networks.network_interfaces.list(GROUP)) == []
    assert networks.subnets.get(GROUP, NETWORK, SUBNET).private_endpoints is None
