"""Decide which load balancers, disks and firewall rules of a project a deleted cluster has created.

Some are in the cluster's network or have its name. The others refer to those: the name of a firewall rule
contains that of a load balancer, a backend service names its endpoint group, and a proxy its URL map.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.providers.gcp.api import ids, labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.gcp.api.sdk import compute

CLUSTER_LABEL = "goog-k8s-cluster-name"  # GKE sets it on the disks of persistent volume claims

_BALANCER = re.compile(r"k8s2?-fw-(?:l7-)?(.+)")  # a firewall rule's name, with that of a load balancer
# A firewall rule's name, with that of a health check.
_CHECK = re.compile(r"(k8s2?-[0-9a-z]+-(?:l4-shared|node))(?:-http)?-hc(?:-fw)?")
_OF_NAT = "NAT_AUTO"  # the purpose of a router's address, which is released with the router


class Found(Protocol):
    """The fields that every Compute Engine resource has."""

    name: str
    self_link: str
    creation_timestamp: str


class _Joined(Protocol):
    """The fields of a resource in a network."""

    network: str
    description: str


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The resources of the region, and the global ones, by collection."""

    addresses: Sequence[compute.Address] = ()
    backend_services: Sequence[compute.BackendService] = ()
    disks: Sequence[compute.Disk] = ()
    firewalls: Sequence[compute.Firewall] = ()
    forwarding_rules: Sequence[compute.ForwardingRule] = ()
    health_checks: Sequence[compute.HealthCheck] = ()
    instance_groups: Sequence[compute.InstanceGroup] = ()
    network_endpoint_groups: Sequence[compute.NetworkEndpointGroup] = ()
    resource_policies: Sequence[compute.ResourcePolicy] = ()
    subnetworks: Sequence[compute.Subnetwork] = ()
    target_http_proxies: Sequence[compute.TargetHttpProxy] = ()
    target_https_proxies: Sequence[compute.TargetHttpsProxy] = ()
    target_pools: Sequence[compute.TargetPool] = ()
    url_maps: Sequence[compute.UrlMap] = ()


class Kin:
    """The resources that one deleted cluster has created.

    Args:
        cluster: the name of the cluster in GKE.
        title: the name of the cluster.
        networks: the paths of its networks.
        rows: all resources of the region, and the global ones.

    Attributes:
        found: the cluster's resources, by the name of the collection in paths.
    """

    def __init__(self, cluster: str, title: str, networks: frozenset[str], rows: Rows) -> None:
        self._cluster, self._title, self._networks = cluster, title, networks
        firewalls = [row for row in rows.firewalls if self._is_within(row)]
        self._names = frozenset(each for row in firewalls for each in _names(row.name))
        self.found: Mapping[str, Sequence[Found]] = {"firewalls": firewalls, **self._follow(rows)}

    def _follow(self, rows: Rows) -> Mapping[str, Sequence[Found]]:
        """Follow the references from the endpoints to the load balancers.

        The order matters: each step uses the results of those before it.
        """
        endpoints = [row for row in rows.network_endpoint_groups if self._is_within(row)]
        groups = [
            row for row in rows.instance_groups if self._is_within(row) and row.name.startswith("k8s-ig-")
        ]
        behind = _paths(endpoints, groups)
        backends = [row for row in rows.backend_services if self._is_backend(row, behind)]
        services = _paths(backends)
        pools = [row for row in rows.target_pools if row.name in self._names or self._has_nodes(row)]
        maps = [row for row in rows.url_maps if ids.path(row.default_service) in services]
        mapped = _paths(maps)
        proxies = [row for row in rows.target_http_proxies if ids.path(row.url_map) in mapped]
        secure = [row for row in rows.target_https_proxies if ids.path(row.url_map) in mapped]
        targets = services | _paths(pools, proxies, secure)
        rules = [row for row in rows.forwarding_rules if self._is_rule(row, targets)]
        checked = (*(row.health_checks for row in backends), *(row.health_checks for row in pools))
        checks = {ids.path(link) for links in checked for link in links}
        like = (*(row.name for row in backends), *(row.name for row in pools))
        named = self._names.union(like, (row.name for row in endpoints))
        addressed = {row.name for row in rules} | self._names
        return {
            "networkEndpointGroups": endpoints,
            "instanceGroups": groups,
            "backendServices": backends,
            "targetPools": pools,
            "urlMaps": maps,
            "targetHttpProxies": proxies,
            "targetHttpsProxies": secure,
            "forwardingRules": rules,
            "healthChecks": [
                row for row in rows.health_checks if row.name in named or ids.path(row.self_link) in checks
            ],
            "addresses": [row for row in rows.addresses if self._is_address(row, addressed)],
            # A disk with users is attached to a machine that still exists.
            "disks": [row for row in rows.disks if not row.users and self._has_name(row)],
            # GKE makes one for the control plane's private endpoint, and a network with it cannot be deleted.
            "subnetworks": [
                row
                for row in rows.subnetworks
                if self._is_within(row) and row.name.startswith("gke-") and row.name.endswith("-pe-subnet")
            ],
            # GKE names the placement policies that it creates after the cluster.
            "resourcePolicies": [
                row for row in rows.resource_policies if row.name.startswith(f"gke-{self._cluster}-")
            ],
        }

    def _is_within(self, row: _Joined) -> bool:
        """Return whether it is in a network of the cluster, and not one of cloudrec's resources."""
        return ids.path(row.network) in self._networks and not labels.described(row.description)

    def _is_backend(self, row: compute.BackendService, groups: frozenset[str]) -> bool:
        is_before = any(ids.path(each.group) in groups for each in row.backends)
        return self._is_within(row) or row.name in self._names or is_before

    def _is_rule(self, row: compute.ForwardingRule, targets: frozenset[str]) -> bool:
        leads_to = {ids.path(row.target), ids.path(row.backend_service)}
        return self._is_within(row) or row.name in self._names or not targets.isdisjoint(leads_to)

    def _is_address(self, row: compute.Address, names: set[str] | frozenset[str]) -> bool:
        is_free = row.purpose != _OF_NAT and not labels.described(row.description)
        return is_free and (row.name in names or self._is_within(row))

    def _has_nodes(self, row: compute.TargetPool) -> bool:
        return any(ids.name(link).startswith(f"gke-{self._cluster}-") for link in row.instances)

    def _has_name(self, row: compute.Disk) -> bool:
        is_named = row.labels.get(CLUSTER_LABEL) == self._cluster
        return is_named or labels.decode(row.labels).get(TAG_CLUSTER) == self._title


def _paths(*rows: Sequence[Found]) -> frozenset[str]:
    return frozenset(ids.path(row.self_link) for each in rows for row in each)


def _names(rule: str) -> list[str]:
    """Return the names of load balancers and health checks in the name of a firewall rule."""
    found = [match[1] for pattern in (_BALANCER, _CHECK) if (match := pattern.fullmatch(rule))]
    return [*found, *([rule] if found else [])]
