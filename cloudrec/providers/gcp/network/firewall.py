"""Firewall rules: only the cluster's own addresses may enter its networks. GKE adds its own rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.providers.gcp.api import ids, sdk
from cloudrec.providers.gcp.api.driver import ComputeDriver, ComputeProperties
from cloudrec.providers.gcp.network import network

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.api.driver import GcpDriver
    from cloudrec.providers.gcp.layout import GcpLayout

FIREWALL = "firewall"
KINDS: Mapping[str, AbstractSet[str]] = {FIREWALL: frozenset({network.NETWORK})}

LUSTRE = "lustre"
_INTERNAL = "internal"
_ALL, _LUSTRE_PORTS = "all", "tcp:988,6988"


@dataclass(frozen=True, kw_only=True)
class FirewallProperties(ComputeProperties):
    """The requested properties of a firewall rule.

    Attributes:
        network: the path of the network that it protects.
        opens: the admitted protocol with its ports: "all", "tcp:988,6988".
        sources: the blocks of addresses that may enter, sorted: "10.0.0.0/20". None for those of `range`.
        range: the path of the range of addresses that may enter; empty for `sources`.
    """

    network: str
    opens: str
    sources: tuple[str, ...] | None = None
    range: str = ""


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe one rule for each network."""
    settings = layout.settings
    return [
        _rule(layout, _INTERNAL, "", (settings.nodes_cidr, settings.pods_cidr)),
        *(
            _rule(layout, suffix, suffix, (network.gpu_block(layout, suffix),))
            for suffix in network.gpu_suffixes(layout)
        ),
    ]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver by kind."""
    return {FIREWALL: GcpFirewallDriver(gcp)}


def _rule(
    layout: GcpLayout, suffix: str, of_network: str, sources: Sequence[str]
) -> Resource[FirewallProperties]:
    return layout.resource(
        FIREWALL,
        suffix,
        needs=(layout.key(network.NETWORK, of_network),),
        properties=FirewallProperties(
            path=layout.global_path("firewalls", suffix),
            network=layout.global_path("networks", of_network),
            sources=tuple(sorted(sources)),
            opens=_ALL,
        ),
        hourly_usd=FREE,
    )


def lustre(layout: GcpLayout, *, addresses: str, path: str) -> Resource[FirewallProperties]:
    """Describe the rule that admits the servers of a file system, which call their clients back.

    See "Create a VPC network" in Managed Lustre's documentation. Google chooses the range's addresses.

    Args:
        layout: of the cluster.
        addresses: the key of the range of addresses.
        path: the path of that range.
    """
    return layout.resource(
        FIREWALL,
        LUSTRE,
        needs=(layout.key(network.NETWORK), addresses),
        properties=FirewallProperties(
            path=layout.global_path("firewalls", LUSTRE),
            network=layout.global_path("networks"),
            opens=_LUSTRE_PORTS,
            range=path,
        ),
        hourly_usd=FREE,
    )


class GcpFirewallDriver(ComputeDriver["sdk.compute.Firewall", FirewallProperties]):
    """Handles firewall rules that admit a network's own addresses, or those of a service of Google's."""

    kind = FIREWALL
    charge = FREE
    noun = "firewall"
    changeable = frozenset({"sources", "opens"})

    @property
    def calls(self) -> sdk.compute.FirewallsClient:
        """The client of firewall rules."""
        return self.gcp.rest(sdk.compute.FirewallsClient)

    def body(self, resource: Resource[FirewallProperties]) -> sdk.compute.Firewall:
        """Return the message for a new rule."""
        rule = self._opened(resource)
        rule.network = resource.properties.network
        return rule

    def properties(self, row: sdk.compute.Firewall) -> Mapping[str, object]:
        """Return the network, the admitted addresses, and the protocol with its ports; "" if disabled."""
        return {
            "network": ids.path(row.network),
            "sources": tuple(sorted(row.source_ranges)),
            "opens": "" if row.disabled else " ".join(_text(each) for each in row.allowed),
        }

    def change(
        self, resource: Resource[FirewallProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Set the sources and protocols of the rule again, and enable it."""
        del identities
        request = {**ids.arguments(observed.identity), "firewall_resource": self._opened(resource)}
        self.start(observed.identity, self.calls.patch_unary, request)

    def _opened(self, resource: Resource[FirewallProperties]) -> sdk.compute.Firewall:
        """Return the message for a rule without its network, which cannot be changed."""
        asked = resource.properties
        protocol, _, ports = asked.opens.partition(":")
        allowed = sdk.compute.Allowed(I_p_protocol=protocol)
        if ports:
            allowed.ports = ports.split(",")
        return sdk.compute.Firewall(
            direction="INGRESS",
            priority=1000,
            source_ranges=list(asked.sources) if asked.sources is not None else [self._block(asked.range)],
            allowed=[allowed],
            disabled=False,
        )

    def _block(self, path: str) -> str:
        read = self.gcp.rest(sdk.compute.GlobalAddressesClient).get
        found = self.gcp.read(read, ids.arguments(path))
        return f"{found.address}/{found.prefix_length}"


def _text(allowed: sdk.compute.Allowed) -> str:
    return f"{allowed.I_p_protocol}:{','.join(allowed.ports)}" if allowed.ports else allowed.I_p_protocol
