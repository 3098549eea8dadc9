"""The networks: one for all nodes, with ranges for pods and services, and one for each card of the GPUs' own.

Networks are global and subnets a region's. A node's card for its GPUs must be in a network that none of its
other cards is in, so that there are as many as the machine type has of them.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from cloudrec.providers.gcp import apis, ids, zones
from cloudrec.providers.gcp.driver import ComputeDriver
from cloudrec.providers.gcp.layout import TAG_ZONES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.driver import GcpDriver
    from cloudrec.providers.gcp.layout import Layout

NETWORK, SUBNET = "network", "subnetwork"
KINDS: Mapping[str, AbstractSet[str]] = {
    NETWORK: frozenset({apis.API}),
    SUBNET: frozenset({NETWORK}),
}
PODS, SERVICES = "pods", "services"  # the names of the subnet's further ranges
MTU = 8244  # what GPUDirect over TCP wants, and good for every other machine: cards learn it when they boot

_GPU_PARTS = 3  # bits: a part of the GPUs' block for each of at most eight networks


def resources(layout: Layout) -> list[Resource]:
    """Describe the networks and their subnets."""
    settings = layout.settings
    laid_out = zones.Zones(home=layout.home_zone, gpu=layout.gpu_zones)
    network = _network(layout, "", tags={TAG_ZONES: zones.as_tag(laid_out)})
    nodes = layout.resource(
        SUBNET,
        needs=(network.key,),
        properties={
            "path": layout.regional_path("subnetworks"),
            "network": network.properties["path"],
            "cidr": settings.nodes_cidr,
            "ranges": {PODS: settings.pods_cidr, SERVICES: settings.services_cidr},
            "private_access": True,
        },
    )
    return [network, nodes, *(each for suffix in gpu_suffixes(layout) for each in _for_gpus(layout, suffix))]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {NETWORK: NetworkDriver(gcp), SUBNET: SubnetDriver(gcp)}


def gpu_suffixes(layout: Layout) -> tuple[str, ...]:
    """Return the suffixes of the networks for the GPUs' own cards, in the cards' order."""
    return tuple(f"gpu{number}" for number in range(layout.gpu_networks))


def gpu_block(layout: Layout, suffix: str) -> str:
    """Return the addresses of a network for the GPUs' own cards."""
    parts = list(ipaddress.IPv4Network(layout.settings.gpu_cidr).subnets(prefixlen_diff=_GPU_PARTS))
    return str(parts[int(suffix.removeprefix("gpu"))])


def _network(layout: Layout, suffix: str, tags: Mapping[str, str] | None = None) -> Resource:
    return layout.resource(
        NETWORK,
        suffix,
        needs=apis.needs(layout),
        properties={"path": layout.global_path("networks", suffix), "mtu": MTU},
        tags=tags,
    )


def _for_gpus(layout: Layout, suffix: str) -> list[Resource]:
    network = _network(layout, suffix)
    subnet = layout.resource(
        SUBNET,
        suffix,
        needs=(network.key,),
        properties={
            "path": layout.regional_path("subnetworks", suffix),
            "network": network.properties["path"],
            "cidr": gpu_block(layout, suffix),
            "ranges": {},
            "private_access": True,
        },
    )
    return [network, subnet]


class NetworkDriver(ComputeDriver):
    """Handles networks."""

    kind = NETWORK
    collection, noun = "networks", "network"
    deadline_s = 1800.0  # what is in it may linger for minutes

    def body(self, resource: Resource, identities: Mapping[str, str]) -> dict[str, Any]:
        """Return a network without subnets of Google's own choice."""
        del identities
        return {
            "auto_create_subnetworks": False,
            "mtu": resource.properties["mtu"],
            "routing_config": {"routing_mode": "REGIONAL"},
        }

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's message
        """Tell its MTU."""
        return {"mtu": row.mtu}


class SubnetDriver(ComputeDriver):
    """Handles subnets."""

    kind = SUBNET
    collection, noun = "subnetworks", "subnetwork"
    is_regional = True
    changeable = frozenset({"private_access"})
    deadline_s = 1800.0  # instances that are still stopping count

    def body(self, resource: Resource, identities: Mapping[str, str]) -> dict[str, Any]:
        """Return a subnet whose nodes reach Google's services without an address of their own."""
        del identities
        wanted = resource.properties
        return {
            "network": wanted["network"],
            "ip_cidr_range": wanted["cidr"],
            "secondary_ip_ranges": [
                {"range_name": name, "ip_cidr_range": block} for name, block in wanted["ranges"].items()
            ],
            "private_ip_google_access": wanted["private_access"],
            "stack_type": "IPV4_ONLY",
        }

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's message
        """Tell its blocks, those of others left out, and whether it reaches Google's services."""
        ranges = {each.range_name: each.ip_cidr_range for each in row.secondary_ip_ranges}
        return {
            "network": ids.path(row.network),
            "cidr": row.ip_cidr_range,
            "ranges": {name: block for name, block in ranges.items() if name in {PODS, SERVICES}},
            "private_access": row.private_ip_google_access,
        }

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Let its nodes reach Google's services."""
        del identities
        wanted = {"private_ip_google_access": resource.properties["private_access"]}
        self.start(
            observed.identity,
            "set_private_ip_google_access",
            {
                **ids.arguments(observed.identity),
                "subnetworks_set_private_ip_google_access_request_resource": wanted,
            },
        )
