"""The networks: one for all nodes, with ranges for pods and services, and one for each GPU network card.

Networks are global, and subnets belong to a region. Each network card of a node must be in another network,
so there are as many further networks as the machine type has cards for its GPUs.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.providers.gcp import zones
from cloudrec.providers.gcp.api import apis, ids, sdk
from cloudrec.providers.gcp.api.driver import ComputeDriver, ComputeProperties, state_of
from cloudrec.providers.gcp.layout import TAG_ZONES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Condition, Observed, Resource
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.api.driver import GcpDriver
    from cloudrec.providers.gcp.layout import GcpLayout

NETWORK, SUBNET = "network", "subnetwork"
KINDS: Mapping[str, AbstractSet[str]] = {
    NETWORK: frozenset({apis.API}),
    SUBNET: frozenset({NETWORK}),
}
PODS, SERVICES = "pods", "services"  # the names of the subnet's secondary ranges
# Bytes. GPUDirect over TCP (A3) needs this MTU; other machines take it over when they boot.
MTU = 8244

_GPU_PARTS = 3  # bits: the GPUs' block has a part for each of up to eight networks


@dataclass(frozen=True, kw_only=True)
class NetworkProperties(ComputeProperties):
    """The requested properties of a network.

    Attributes:
        mtu: size of the largest packet in bytes.
    """

    mtu: int


@dataclass(frozen=True, kw_only=True)
class SubnetProperties(ComputeProperties):
    """The requested properties of a subnet.

    Attributes:
        network: the path of the network.
        cidr: the block of the nodes' addresses.
        ranges: the blocks of pods' and services' addresses, by the ranges' names; empty in a GPU network.
        private_access: whether nodes without an external address reach Google's services.
    """

    network: str
    cidr: str
    ranges: Mapping[str, str]
    private_access: bool


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the networks and their subnets."""
    settings = layout.settings
    laid_out = zones.GcpZones(home=layout.home_zone, gpu=layout.gpu_zones)
    network = _network(layout, "", tags={TAG_ZONES: zones.as_tag(laid_out)})
    nodes = layout.resource(
        SUBNET,
        needs=(network.key,),
        properties=SubnetProperties(
            path=layout.regional_path("subnetworks"),
            network=network.properties.path,
            cidr=settings.nodes_cidr,
            ranges={PODS: settings.pods_cidr, SERVICES: settings.services_cidr},
            private_access=True,
        ),
        hourly_usd=FREE,
    )
    return [network, nodes, *(each for suffix in gpu_suffixes(layout) for each in _for_gpus(layout, suffix))]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {NETWORK: GcpNetworkDriver(gcp), SUBNET: GcpSubnetDriver(gcp)}


def gpu_suffixes(layout: GcpLayout) -> tuple[str, ...]:
    """Return the suffixes of the GPU networks, in the order of the cards."""
    return tuple(f"gpu{number}" for number in range(layout.gpu_networks))


def gpu_block(layout: GcpLayout, suffix: str) -> str:
    """Return the block of addresses of a GPU network."""
    parts = list(ipaddress.IPv4Network(layout.settings.gpu_cidr).subnets(prefixlen_diff=_GPU_PARTS))
    return str(parts[int(suffix.removeprefix("gpu"))])


def _network(
    layout: GcpLayout, suffix: str, tags: Mapping[str, str] | None = None
) -> Resource[NetworkProperties]:
    return layout.resource(
        NETWORK,
        suffix,
        needs=apis.needs(layout),
        properties=NetworkProperties(path=layout.global_path("networks", suffix), mtu=MTU),
        tags=tags,
        hourly_usd=FREE,
    )


def _for_gpus(layout: GcpLayout, suffix: str) -> list[Resource]:
    network = _network(layout, suffix)
    subnet = layout.resource(
        SUBNET,
        suffix,
        needs=(network.key,),
        properties=SubnetProperties(
            path=layout.regional_path("subnetworks", suffix),
            network=network.properties.path,
            cidr=gpu_block(layout, suffix),
            ranges={},
            private_access=True,
        ),
        hourly_usd=FREE,
    )
    return [network, subnet]


class GcpNetworkDriver(ComputeDriver["sdk.compute.Network", NetworkProperties]):
    """Handles networks."""

    kind = NETWORK
    charge = FREE
    noun = "network"
    deadline_s = 1800.0  # a network cannot be deleted before its resources, and some of them take minutes

    @property
    def calls(self) -> sdk.compute.NetworksClient:
        """The client of networks."""
        return self.gcp.rest(sdk.compute.NetworksClient)

    def body(self, resource: Resource[NetworkProperties]) -> sdk.compute.Network:
        """Return the message for a network without automatic subnets."""
        return sdk.compute.Network(
            auto_create_subnetworks=False,
            mtu=resource.properties.mtu,
            routing_config=sdk.compute.NetworkRoutingConfig(routing_mode="REGIONAL"),
        )

    def properties(self, row: sdk.compute.Network) -> Mapping[str, object]:
        """Return the MTU."""
        return {"mtu": row.mtu}


class GcpSubnetDriver(ComputeDriver["sdk.compute.Subnetwork", SubnetProperties]):
    """Handles subnets."""

    kind = SUBNET
    charge = FREE
    noun = "subnetwork"
    is_regional = True
    changeable = frozenset({"private_access"})
    deadline_s = 1800.0  # a subnet cannot be deleted while machines in it are stopping

    @property
    def calls(self) -> sdk.compute.SubnetworksClient:
        """The client of subnetworks."""
        return self.gcp.rest(sdk.compute.SubnetworksClient)

    def body(self, resource: Resource[SubnetProperties]) -> sdk.compute.Subnetwork:
        """Return the message for a subnet with its secondary ranges."""
        wanted = resource.properties
        return sdk.compute.Subnetwork(
            network=wanted.network,
            ip_cidr_range=wanted.cidr,
            secondary_ip_ranges=[
                sdk.compute.SubnetworkSecondaryRange(range_name=name, ip_cidr_range=block)
                for name, block in wanted.ranges.items()
            ],
            private_ip_google_access=wanted.private_access,
            stack_type="IPV4_ONLY",
        )

    def state(self, row: sdk.compute.Subnetwork) -> Condition:
        """Return the condition of the subnet."""
        return state_of(row.state)

    def properties(self, row: sdk.compute.Subnetwork) -> Mapping[str, object]:
        """Return the network, the blocks, and whether nodes reach Google's services.

        Secondary ranges with other names are left out: users may add their own.
        """
        ranges = {each.range_name: each.ip_cidr_range for each in row.secondary_ip_ranges}
        return {
            "network": ids.path(row.network),
            "cidr": row.ip_cidr_range,
            "ranges": {name: block for name, block in ranges.items() if name in {PODS, SERVICES}},
            "private_access": row.private_ip_google_access,
        }

    def change(
        self, resource: Resource[SubnetProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Turn on private access to Google's services."""
        del identities
        wanted = sdk.compute.SubnetworksSetPrivateIpGoogleAccessRequest(
            private_ip_google_access=resource.properties.private_access
        )
        self.start(
            observed.identity,
            self.calls.set_private_ip_google_access_unary,
            {
                **ids.arguments(observed.identity),
                "subnetworks_set_private_ip_google_access_request_resource": wanted,
            },
        )
