"""The Cloud Router and its NAT, through which nodes without external addresses reach the internet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.cost import total
from cloudrec.providers.gcp.api import ids, sdk
from cloudrec.providers.gcp.api.driver import ComputeDriver, ComputeProperties
from cloudrec.providers.gcp.network import network

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.providers.base.prices import Prices
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.api.driver import GcpDriver
    from cloudrec.providers.gcp.layout import GcpLayout

ROUTER = "router"
KINDS: Mapping[str, AbstractSet[str]] = {ROUTER: frozenset({network.NETWORK, network.SUBNET})}

_NAT = "cloudrec"  # the name of cloudrec's NAT in the router
_PORTS, _MOST_PORTS = 64, 32768  # of each node: the minimum and the maximum


@dataclass(frozen=True, kw_only=True)
class RouterProperties(ComputeProperties):
    """The requested properties of a router.

    Attributes:
        network: the path of the network.
        nat_for: the path of the subnet whose nodes use its NAT.
    """

    network: str
    nat_for: str


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the router."""
    return [
        layout.resource(
            ROUTER,
            needs=(layout.key(network.NETWORK), layout.key(network.SUBNET)),
            properties=RouterProperties(
                path=layout.regional_path("routers"),
                network=layout.global_path("networks"),
                nat_for=layout.regional_path("subnetworks"),
            ),
            hourly_usd=_price(layout.prices),
        )
    ]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver by kind."""
    return {ROUTER: RouterDriver(gcp)}


def _price(prices: Prices, count: int = 1) -> float | None:
    return total(prices.service("nat-gateway", count), prices.service("address", count))


def _entry(subnet: str) -> sdk.compute.RouterNat:
    """Return the message for the NAT. It serves the nodes' subnet only, so that others can add their own."""
    of = sdk.compute
    return of.RouterNat(
        name=_NAT,
        nat_ip_allocate_option="AUTO_ONLY",
        source_subnetwork_ip_ranges_to_nat="LIST_OF_SUBNETWORKS",
        subnetworks=[of.RouterNatSubnetworkToNat(name=subnet, source_ip_ranges_to_nat=["ALL_IP_RANGES"])],
        enable_dynamic_port_allocation=True,
        enable_endpoint_independent_mapping=False,
        min_ports_per_vm=_PORTS,
        max_ports_per_vm=_MOST_PORTS,
        log_config=of.RouterNatLogConfig(enable=True, filter="ERRORS_ONLY"),
    )


class RouterDriver(ComputeDriver["sdk.compute.Router", RouterProperties]):
    """Handles routers. Other NATs in a router's list stay as they are."""

    kind = ROUTER
    noun = "router"
    is_regional = True
    changeable = frozenset({"nat_for"})

    @property
    def calls(self) -> sdk.compute.RoutersClient:
        """The client of routers."""
        return self.gcp.rest(sdk.compute.RoutersClient)

    def body(self, resource: Resource[RouterProperties]) -> sdk.compute.Router:
        """Return the message for a router with its NAT."""
        wanted = resource.properties
        return sdk.compute.Router(network=wanted.network, nats=[_entry(wanted.nat_for)])

    def properties(self, row: sdk.compute.Router) -> Mapping[str, object]:
        """Return the network, and the subnet of cloudrec's NAT; "" if the NAT is missing or was changed."""
        subnets = [_subnet(each) for each in row.nats if each.name == _NAT]
        return {"network": ids.path(row.network), "nat_for": subnets[0] if subnets else ""}

    def hourly_usd(self, row: sdk.compute.Router) -> float | None:
        """Return the price of the NATs and their addresses in USD per hour."""
        return _price(self.gcp.prices, len(row.nats))

    def change(
        self, resource: Resource[RouterProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Write cloudrec's NAT again, and keep the others."""
        del identities
        entry = _entry(resource.properties.nat_for)
        # A patch replaces the whole list: it is read right before, so that no other entry gets lost.
        with self.gcp.lock(observed.identity):
            others = [each for each in self.row(observed.identity).nats if each.name != _NAT]
            request = {
                **ids.arguments(observed.identity),
                "router_resource": sdk.compute.Router(nats=[*others, entry]),
            }
            self.start(observed.identity, self.calls.patch_unary, request)


def _subnet(nat: sdk.compute.RouterNat) -> str:
    """Return the only subnet that a NAT serves; empty if a user has changed the NAT."""
    subnets = [ids.path(each.name) for each in nat.subnetworks]
    is_right = len(subnets) == 1 and _compared(nat) == _compared(_entry(subnets[0]))
    return subnets[0] if is_right else ""


def _compared(nat: sdk.compute.RouterNat) -> tuple[object, ...]:
    """Return the fields of a NAT that must not differ from `_entry`; users may change the logging."""
    return (
        nat.name,
        nat.nat_ip_allocate_option,
        nat.source_subnetwork_ip_ranges_to_nat,
        nat.enable_dynamic_port_allocation,
        nat.enable_endpoint_independent_mapping,
        nat.min_ports_per_vm,
        nat.max_ports_per_vm,
    )
