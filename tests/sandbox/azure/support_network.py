"""Short cuts for tests with networks: what most of them need first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sandbox.azure.support import GROUP, LOCATION

if TYPE_CHECKING:
    from tests.sandbox.azure.support import Azure

NETWORK, SUBNET = "net", "nodes"


def finish(azure: Azure, poller: Any) -> Any:
    """The result of an operation that began before."""
    azure.advance(60)
    return poller.result(30)


def make_network(azure: Azure, name: str = NETWORK, prefix: str = "10.0.0.0/16", **properties: Any) -> Any:
    body = {
        "location": LOCATION,
        "properties": {"addressSpace": {"addressPrefixes": [prefix]}, **properties},
    }
    networks = azure.client("network").virtual_networks
    return azure.done(networks.begin_create_or_update, GROUP, name, body, seconds=60)


def put_subnet(azure: Azure, name: str = SUBNET, prefix: str = "10.0.0.0/24", **properties: Any) -> Any:
    body = {"properties": {"addressPrefix": prefix, **properties}}
    return azure.begin(azure.client("network").subnets.begin_create_or_update, GROUP, NETWORK, name, body)


def make_subnet(azure: Azure, name: str = SUBNET, prefix: str = "10.0.0.0/24", **properties: Any) -> Any:
    return finish(azure, put_subnet(azure, name, prefix, **properties))


def make_address(azure: Azure, name: str = "ip") -> Any:
    body = {
        "location": LOCATION,
        "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static"},
    }
    addresses = azure.client("network").public_ip_addresses
    return azure.done(addresses.begin_create_or_update, GROUP, name, body, seconds=60)


def put_nat(azure: Azure, name: str = "nat", *, addresses: tuple[str, ...] = ()) -> Any:
    body = {
        "location": LOCATION,
        "sku": {"name": "Standard"},
        "properties": {"publicIpAddresses": [{"id": each} for each in addresses]},
    }
    return azure.begin(azure.client("network").nat_gateways.begin_create_or_update, GROUP, name, body)


def make_interface(azure: Azure, name: str = "nic", subnet: str = SUBNET) -> Any:
    subnet_id = azure.id("Microsoft.Network/virtualNetworks/subnets", NETWORK, subnet)
    row = {"name": "one", "properties": {"subnet": {"id": subnet_id}}}
    body = {"location": LOCATION, "properties": {"ipConfigurations": [row]}}
    interfaces = azure.client("network").network_interfaces
    return azure.done(interfaces.begin_create_or_update, GROUP, name, body, seconds=60)
