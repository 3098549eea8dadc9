"""Who may talk in the networks: the cluster's own addresses, and nobody else; GKE adds what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.providers.gcp import ids, network
from cloudrec.providers.gcp.driver import ComputeDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.driver import GcpDriver
    from cloudrec.providers.gcp.layout import Layout

FIREWALL = "firewall"
KINDS: Mapping[str, AbstractSet[str]] = {FIREWALL: frozenset({network.NETWORK})}

_INTERNAL = "internal"


def resources(layout: Layout) -> list[Resource]:
    """Describe a rule for each network."""
    settings = layout.settings
    return [
        _rule(layout, _INTERNAL, "", (settings.nodes_cidr, settings.pods_cidr)),
        *(
            _rule(layout, suffix, suffix, (network.gpu_block(layout, suffix),))
            for suffix in network.gpu_suffixes(layout)
        ),
    ]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver by its kind."""
    return {FIREWALL: FirewallDriver(gcp)}


def _rule(layout: Layout, suffix: str, of_network: str, sources: Sequence[str]) -> Resource:
    return layout.resource(
        FIREWALL,
        suffix,
        needs=(layout.key(network.NETWORK, of_network),),
        properties={
            "path": layout.global_path("firewalls", suffix),
            "network": layout.global_path("networks", of_network),
            "sources": tuple(sorted(sources)),
            "enabled": True,
        },
    )


class FirewallDriver(ComputeDriver):
    """Handles firewall rules that let a network's own addresses in."""

    kind = FIREWALL
    collection, noun = "firewalls", "firewall"
    changeable = frozenset({"sources", "enabled"})

    def body(self, resource: Resource, identities: Mapping[str, str]) -> dict[str, Any]:
        """Return the rule."""
        del identities
        return {
            "network": resource.properties["network"],
            "direction": "INGRESS",
            "priority": 1000,
            "source_ranges": list(resource.properties["sources"]),
            "allowed": [{"I_p_protocol": "all"}],
            "disabled": False,
        }

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's message
        """Tell whom it lets in."""
        return {
            "network": ids.path(row.network),
            "sources": tuple(sorted(row.source_ranges)),
            "enabled": not row.disabled and [each.I_p_protocol for each in row.allowed] == ["all"],
        }

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Put the rule right."""
        wanted = {key: value for key, value in self.body(resource, identities).items() if key != "network"}
        request = {**ids.arguments(observed.identity), "firewall_resource": wanted}
        self.start(observed.identity, "patch", request)
