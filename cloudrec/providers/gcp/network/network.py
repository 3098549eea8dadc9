"""The networks: one for all nodes, with ranges for pods and services, and those of the nodes' further cards.

Networks are global, and subnets belong to a region. Each gVNIC card of a node must be in another network, so
there are as many further networks as the machine type has such cards. All RDMA cards are in one network, each
in another subnet. That network is made with the network profile of a zone, so each zone has a separate one
("RDMA network profiles", VPC's documentation).
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
    from cloudrec.providers.gcp.offers import GcpMachineType

NETWORK, SUBNET = "network", "subnetwork"
KINDS: Mapping[str, AbstractSet[str]] = {
    NETWORK: frozenset({apis.API}),
    SUBNET: frozenset({NETWORK}),
}
PODS, SERVICES = "pods", "services"  # the names of the subnet's secondary ranges
# Bytes. GPUDirect over TCP (A3) needs this MTU; other machines take it over when they boot.
MTU = 8244

RDMA_MTU = 8896  # bytes; Google's recommendation for networks with an RDMA profile

_GPU_PARTS = 3  # bits: the GPUs' block has a part for each of up to eight networks
# The subnets of RDMA cards have half a part each, behind the first part, which is that of the machine's other
# card. In each zone they have the same blocks: their networks are not connected.
_RDMA_PARTS, _BEFORE_RDMA = 4, 2


@dataclass(frozen=True, kw_only=True)
class NetworkProperties(ComputeProperties):
    """The requested properties of a network.

    Attributes:
        mtu: size of the largest packet in bytes.
        profile: the path of the network profile that it is made with; empty for none.
    """

    mtu: int
    profile: str = ""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A network card of a GPU node, besides the first.

    Attributes:
        network: the suffix of its network.
        subnet: the suffix of its subnet.
        is_rdma: whether it is an RDMA card.
    """

    network: str
    subnet: str
    is_rdma: bool = False


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
    return [
        network,
        nodes,
        *(each for suffix in gpu_suffixes(layout) for each in _for_gpus(layout, suffix)),
        *(each for zone in layout.rdma_zones for each in _for_rdma(layout, zone)),
    ]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {NETWORK: GcpNetworkDriver(gcp), SUBNET: GcpSubnetDriver(gcp)}


def gpu_suffixes(layout: GcpLayout) -> tuple[str, ...]:
    """Return the suffixes of the networks of further gVNIC cards, in the order of the cards."""
    return tuple(f"gpu{number}" for number in range(layout.gpu_networks))


def network_suffixes(layout: GcpLayout) -> tuple[str, ...]:
    """Return the suffixes of all networks."""
    return ("", *gpu_suffixes(layout), *(_rdma(zone) for zone in layout.rdma_zones))


def subnet_suffixes(layout: GcpLayout) -> tuple[str, ...]:
    """Return the suffixes of all subnets."""
    rdma = (suffix for zone in layout.rdma_zones for suffix in _rdma_subnets(layout.rdma_nics, zone))
    return ("", *gpu_suffixes(layout), *rdma)


def cards(hardware: GcpMachineType, zone: str) -> tuple[Card, ...]:
    """Return the cards of a machine type's nodes in a zone, besides the first, in their order."""
    over_tcp = (f"gpu{number}" for number in range(hardware.gpu_nics))
    return (
        *(Card(network=suffix, subnet=suffix) for suffix in over_tcp),
        *(
            Card(network=_rdma(zone), subnet=suffix, is_rdma=True)
            for suffix in _rdma_subnets(hardware.rdma_nics, zone)
        ),
    )


def profile_name(zone: str) -> str:
    """Return the name of the network profile of a zone's RDMA cards."""
    return f"{zone}-vpc-roce"


def gpu_block(layout: GcpLayout, suffix: str) -> str:
    """Return the block of addresses of a further gVNIC card's network."""
    return _part(layout, _GPU_PARTS, int(suffix.removeprefix("gpu")))


def _part(layout: GcpLayout, bits: int, number: int) -> str:
    return str(list(ipaddress.IPv4Network(layout.settings.gpu_cidr).subnets(prefixlen_diff=bits))[number])


def _rdma(zone: str) -> str:
    return f"rdma-{zone.rpartition('-')[2]}"


def _rdma_subnets(count: int, zone: str) -> tuple[str, ...]:
    return tuple(f"{_rdma(zone)}-{number}" for number in range(count))


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


def _for_rdma(layout: GcpLayout, zone: str) -> list[Resource]:
    """Describe the network of a zone's RDMA cards.

    Its profile blocks firewall rules, routers, secondary ranges and access to Google's services. Only RDMA
    cards can be in it, and only the cluster's nodes have any.
    """
    suffix = _rdma(zone)
    network = layout.resource(
        NETWORK,
        suffix,
        needs=apis.needs(layout),
        properties=NetworkProperties(
            path=layout.global_path("networks", suffix),
            mtu=RDMA_MTU,
            profile=f"projects/{layout.project}/global/networkProfiles/{profile_name(zone)}",
        ),
        hourly_usd=FREE,
    )
    subnets = [
        layout.resource(
            SUBNET,
            each,
            needs=(network.key,),
            properties=SubnetProperties(
                path=layout.regional_path("subnetworks", each),
                network=network.properties.path,
                cidr=_part(layout, _RDMA_PARTS, _BEFORE_RDMA + number),
                ranges={},
                private_access=False,
            ),
            hourly_usd=FREE,
        )
        for number, each in enumerate(_rdma_subnets(layout.rdma_nics, zone))
    ]
    return [network, *subnets]


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
        made = sdk.compute.Network(
            auto_create_subnetworks=False,
            mtu=resource.properties.mtu,
            routing_config=sdk.compute.NetworkRoutingConfig(routing_mode="REGIONAL"),
        )
        if resource.properties.profile:
            made.network_profile = resource.properties.profile
        return made

    def properties(self, row: sdk.compute.Network) -> Mapping[str, object]:
        """Return the MTU and the network profile."""
        return {"mtu": row.mtu, "profile": ids.path(row.network_profile) if row.network_profile else ""}


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
