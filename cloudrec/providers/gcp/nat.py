"""The way out: a router, and in it the NAT by which nodes without addresses of their own reach others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.providers.gcp import ids, network
from cloudrec.providers.gcp.driver import ComputeDriver

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.cloud.prices import Prices
    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.driver import GcpDriver
    from cloudrec.providers.gcp.layout import Layout

ROUTER = "router"
KINDS: Mapping[str, AbstractSet[str]] = {ROUTER: frozenset({network.NETWORK, network.SUBNET})}

_NAT = "cloudrec"  # the name of our entry in the router's list
_PORTS, _MOST_PORTS = 64, 32768  # of a node, at first and at most


def resources(layout: Layout) -> list[Resource]:
    """Describe the router."""
    return [
        layout.resource(
            ROUTER,
            needs=(layout.key(network.NETWORK), layout.key(network.SUBNET)),
            properties={
                "path": layout.regional_path("routers"),
                "network": layout.global_path("networks"),
                "nat_for": layout.regional_path("subnetworks"),
            },
            hourly_usd=_price(layout.prices),
        )
    ]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver by its kind."""
    return {ROUTER: RouterDriver(gcp)}


def _price(prices: Prices) -> float:
    return prices.service("nat-gateway") + prices.service("address")


def _entry(subnet: str) -> dict[str, Any]:
    """Return our NAT, which is for the nodes' subnet alone: others may have theirs beside it."""
    return {
        "name": _NAT,
        "nat_ip_allocate_option": "AUTO_ONLY",
        "source_subnetwork_ip_ranges_to_nat": "LIST_OF_SUBNETWORKS",
        "subnetworks": [{"name": subnet, "source_ip_ranges_to_nat": ["ALL_IP_RANGES"]}],
        "enable_dynamic_port_allocation": True,
        "enable_endpoint_independent_mapping": False,
        "min_ports_per_vm": _PORTS,
        "max_ports_per_vm": _MOST_PORTS,
        "log_config": {"enable": True, "filter": "ERRORS_ONLY"},
    }


class RouterDriver(ComputeDriver):
    """Handles routers. Other people's entries in its list of NATs stay."""

    kind = ROUTER
    collection, noun = "routers", "router"
    is_regional = True
    changeable = frozenset({"nat_for"})

    def body(self, resource: Resource, identities: Mapping[str, str]) -> dict[str, Any]:
        """Return a router that has its NAT from the beginning."""
        del identities
        return {"network": resource.properties["network"], "nats": [_entry(resource.properties["nat_for"])]}

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's message
        """Tell the subnet that our NAT is for; none where it is not as it should be."""
        subnets = [_subnet(each) for each in row.nats if each.name == _NAT]
        return {"network": ids.path(row.network), "nat_for": subnets[0] if subnets else ""}

    def hourly_usd(self, row: Any) -> float:  # noqa: ANN401 - the SDK's message
        """Tell what the NAT and its address cost."""
        return _price(self.gcp.prices) * len(row.nats)

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Put our entry right: a patch replaces the list, so that it is read at the last moment."""
        del identities
        entry = _entry(resource.properties["nat_for"])
        with self.gcp.lock(observed.identity):
            others = [each for each in self.row(observed.identity).nats if each.name != _NAT]
            request = {
                **ids.arguments(observed.identity),
                "router_resource": {"nats": [*others, entry]},
            }
            self.start(observed.identity, "patch", request)


def _subnet(nat: Any) -> str:  # noqa: ANN401 - the SDK's message
    """Return the one subnet that a NAT of ours is for; empty where somebody has changed it."""
    subnets = [ids.path(each.name) for each in nat.subnetworks]
    wanted = _entry(subnets[0]) if len(subnets) == 1 else {}
    compared = wanted.keys() - {"log_config", "subnetworks"}
    is_right = bool(wanted) and all(getattr(nat, key) == wanted[key] for key in compared)
    return subnets[0] if is_right else ""
