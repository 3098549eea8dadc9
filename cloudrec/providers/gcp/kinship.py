"""Which of a project's load balancers, disks and rules were made by a cluster that is gone.

Some are in the cluster's network or bear its name. The others hang together with those: a rule of the
firewall has a load balancer's name in its own, a backend names its group of endpoints, a proxy its map.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.providers.gcp import ids, labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Is = Callable[[Any], bool]

CLUSTER_LABEL = "goog-k8s-cluster-name"  # GKE's own, on disks that were made for volume claims

_BALANCER = re.compile(r"k8s2?-fw-(?:l7-)?(.+)")  # a rule's name, and in it that of a load balancer
_CHECK = re.compile(
    r"(k8s2?-[0-9a-z]+-(?:l4-shared|node))(?:-http)?-hc(?:-fw)?"
)  # likewise, of a health check
_OF_NAT = "NAT_AUTO"  # an address that a router has taken, and gives back


class Kin:
    """What belongs to one cluster that is gone.

    Args:
        cluster: GKE's name of it.
        title: its name with us.
        networks: the paths of its networks.
        rows: all there is in the region and in all regions, by collection.
    """

    def __init__(
        self, cluster: str, title: str, networks: frozenset[str], rows: Mapping[str, Sequence[Any]]
    ) -> None:
        self._cluster, self._title, self._networks = cluster, title, networks
        self._rows = rows
        self._found: dict[str, list[Any]] = {}
        self._take("firewalls", self._is_within)
        named = [each for row in self._found["firewalls"] for each in _names(row.name)]
        self._names = frozenset(named)
        self._follow()

    def of(self, collection: str) -> Sequence[Any]:
        """Return what belongs to it, of a collection by its name in paths."""
        return self._found[collection]

    def _follow(self) -> None:
        """Go from what is known to what hangs together with it; the order matters."""
        self._take("networkEndpointGroups", self._is_within)
        self._take("instanceGroups", lambda row: self._is_within(row) and row.name.startswith("k8s-ig-"))
        groups = self._paths("networkEndpointGroups", "instanceGroups")
        self._take(
            "backendServices",
            lambda row: (
                self._is_within(row)
                or row.name in self._names
                or any(ids.path(each.group) in groups for each in row.backends)
            ),
        )
        services = self._paths("backendServices")
        self._take("targetPools", lambda row: row.name in self._names or self._has_nodes(row))
        self._take("urlMaps", lambda row: ids.path(row.default_service) in services)
        maps = self._paths("urlMaps")
        for proxies in ("targetHttpProxies", "targetHttpsProxies"):
            self._take(proxies, lambda row: ids.path(row.url_map) in maps)
        targets = services | self._paths("targetPools", "targetHttpProxies", "targetHttpsProxies")
        self._take(
            "forwardingRules",
            lambda row: (
                self._is_within(row)
                or row.name in self._names
                or not targets.isdisjoint({ids.path(row.target), ids.path(row.backend_service)})
            ),
        )
        balancers = [*self._found["backendServices"], *self._found["targetPools"]]
        checks = {ids.path(link) for row in balancers for link in row.health_checks}
        named = self._names | {row.name for row in (*balancers, *self._found["networkEndpointGroups"])}
        self._take("healthChecks", lambda row: row.name in named or ids.path(row.self_link) in checks)
        rules = {row.name for row in self._found["forwardingRules"]} | self._names
        self._take(
            "addresses",
            lambda row: (
                row.purpose != _OF_NAT
                and not labels.described(row.description)
                and (row.name in rules or self._is_within(row))
            ),
        )
        self._take("disks", lambda row: not row.users and self._bears_name(row))
        self._take("resourcePolicies", lambda row: row.name.startswith(f"gke-{self._cluster}-"))

    def _take(self, collection: str, is_kin: Is) -> None:
        self._found[collection] = [row for row in self._rows[collection] if is_kin(row)]

    def _paths(self, *collections: str) -> frozenset[str]:
        rows: Iterable[Any] = (row for each in collections for row in self._found[each])
        return frozenset(ids.path(row.self_link) for row in rows)

    def _is_within(self, row: Any) -> bool:  # noqa: ANN401 - the SDK's message
        """Tell whether it is in a network of the cluster, and none of what we made there."""
        return ids.path(row.network) in self._networks and not labels.described(row.description)

    def _has_nodes(self, row: Any) -> bool:  # noqa: ANN401 - the SDK's message
        return any(ids.name(link).startswith(f"gke-{self._cluster}-") for link in row.instances)

    def _bears_name(self, row: Any) -> bool:  # noqa: ANN401 - the SDK's message
        is_named = row.labels.get(CLUSTER_LABEL) == self._cluster
        return is_named or labels.decode(row.labels).get(TAG_CLUSTER) == self._title


def _names(rule: str) -> list[str]:
    """The names of load balancers and health checks that a firewall rule's name tells."""
    found = [match[1] for pattern in (_BALANCER, _CHECK) if (match := pattern.fullmatch(rule))]
    return [*found, *([rule] if found else [])]
