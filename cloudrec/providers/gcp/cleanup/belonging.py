"""Decide which cluster a resource belongs to, and whether a cluster that exists uses it.

A resource belongs to a cluster by its labels, by the network that it is in, or, if it cannot have labels, by
its name. While a cluster exists, its machines and what its controllers create are a part of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.providers.base.driver import is_ours
from cloudrec.providers.gcp.api import gke, ids, labels
from cloudrec.providers.gcp.cleanup.inventory import DISK, GROUPS, INSTANCE
from cloudrec.providers.gcp.cleanup.ownership import CLUSTER_LABEL
from cloudrec.providers.gcp.layout import TAG_REGION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.providers.gcp.api import sdk
    from cloudrec.providers.gcp.cleanup.inventory import Row

_LOCATION_LABEL = "goog-k8s-cluster-location"  # GKE sets it beside CLUSTER_LABEL
_PARTS = ("gke-", "gk3-")  # the beginning of the names of what GKE makes
_CUT = 20  # characters of a cluster's name in those names
# The names that GKE's controllers give to load balancers and to their parts.
_OF_CONTROLLERS = re.compile(r"(a[0-9a-f]{31}|k8s\d?-.+|gkegw\d-.+|gke-.+|gk3-.+)")
_FOR_KUBERNETES = "kubernetes.io/"  # in the descriptions that controllers write
_BY_CSI = "storage_gke_io_created-by"  # the label of file systems that a claim of volumes made


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The clusters that the audit is about.

    Attributes:
        cluster: the name of the only cluster; None for all of cloudrec's clusters.
        region: the region.
        networks: the names of clusters by the paths of their networks.
        clusters: all clusters that exist in the project, in every region.
    """

    cluster: str | None
    region: str
    networks: Mapping[str, str]
    clusters: Sequence[sdk.container.Cluster]


class Belonging:
    """Decides for the resources of one region.

    Args:
        scope: the clusters.
        rows: all resources of the region, and the global ones.
    """

    def __init__(self, scope: Scope, rows: Sequence[Row]) -> None:
        self._scope = scope
        self._inside = {**scope.networks, **_reached(scope.networks, rows)}
        self._living = {(row.name, gke.region_of(row.location)): row for row in scope.clusters}
        self._titles = {row.name: title(row) for row in scope.clusters if row.name.startswith(gke.PREFIX)}
        self._alive = {
            self._titles[name]
            for name, region in self._living
            if region == scope.region and name in self._titles
        }
        groups = [
            link for row in scope.clusters for pool in row.node_pools for link in pool.instance_group_urls
        ]
        self._groups = {(ids.location(link), ids.name(link)) for link in groups}
        self._changing = {place for place, row in self._living.items() if _is_changing(row)}
        machines = (row for row in rows if row.noun == INSTANCE and self._is_machine(row))
        self._machines = {row.path for row in machines}

    def cluster_of(self, row: Row) -> str | None:
        """Return the cluster that a resource belongs to; empty if its name shows no more than that one does.

        None: it belongs to none of the clusters of the audit.
        """
        found = self._named_by(row)
        if found is None or not self._is_here(row):
            return None
        return found if self._scope.cluster in {None, found} else None

    def is_used(self, row: Row) -> bool:
        """Return whether a cluster that exists uses the resource: it is a part of it, or made for it."""
        if row.noun == INSTANCE:
            return row.path in self._machines
        if row.noun in GROUPS:
            return self._is_group(row)
        if row.noun == DISK and row.users & self._machines:
            return True
        if self._cluster_in(row.labels) in self._living or self._has_living_name(row):
            return True
        said, mine = row.description, row.labels
        made = _OF_CONTROLLERS.fullmatch(row.name) or _FOR_KUBERNETES in said or _BY_CSI in mine
        return bool(made) and self._is_inside(row)

    def _named_by(self, row: Row) -> str | None:
        """Return the cluster by the best evidence: labels, then the network, then the name."""
        inside = next((self._inside[link] for link in sorted(row.links) if link in self._inside), None)
        if inside is not None and inside == self._scope.cluster:
            return inside  # whatever its labels are, it prevents the removal of this cluster's network
        if is_ours(row.tags, None):
            return row.tags[TAG_CLUSTER]
        labelled = row.labels.get(CLUSTER_LABEL, "")
        if labelled.startswith(gke.PREFIX):
            return self._title(labelled)
        if inside is not None or row.has_labels:
            return inside
        return self._by_name(row.name)

    def _by_name(self, name: str) -> str | None:
        """Return the cluster whose name begins the resource's name; empty if none is known."""
        own = {self._scope.cluster} if self._scope.cluster is not None else set()
        known = {*self._scope.networks.values(), *self._titles.values(), *own}
        fits = [each for each in known if _begins(name, gke.cluster_name(each))]
        if fits:
            return max(fits, key=len)
        ours = name.startswith((gke.PREFIX, *(f"{part}{gke.PREFIX}" for part in _PARTS)))
        return "" if ours else None

    def _title(self, name: str) -> str:
        """Return the name of the cluster that has this name in GKE."""
        if self._scope.cluster is not None and gke.cluster_name(self._scope.cluster) == name:
            return self._scope.cluster
        return self._titles.get(name, name.removeprefix(gke.PREFIX))

    def _is_here(self, row: Row) -> bool:
        """Return whether a global resource is of this region's cluster, as far as its labels show."""
        if row.region:
            return True
        of_cluster = row.labels.get(_LOCATION_LABEL, "")
        region = row.tags.get(TAG_REGION) or gke.region_of(of_cluster)
        return region in {"", self._scope.region}

    def _is_machine(self, row: Row) -> bool:
        """Return whether an instance is in a group of a cluster's pools."""
        group, _, _ = row.name.rpartition("-")
        # While a pool is created or deleted, GKE may not report its groups.
        return (row.zone, f"{group}-grp") in self._groups or self._cluster_in(row.labels) in self._changing

    def _is_group(self, row: Row) -> bool:
        where = row.zone or row.region
        if (where, row.name) in self._groups or (row.name.startswith("k8s-ig-") and self._is_inside(row)):
            return True
        return any(_begins(row.name, name) for name, _ in self._changing)

    def _is_inside(self, row: Row) -> bool:
        return any(self._inside.get(link) in self._alive for link in row.links)

    def _has_living_name(self, row: Row) -> bool:
        """Return whether GKE made it for a cluster in its region, or in any if it is global."""
        places = [name for name, region in self._living if row.region in {"", region}]
        return row.name.startswith(_PARTS) and any(_begins(row.name, name) for name in places)

    def _cluster_in(self, of: Mapping[str, str]) -> tuple[str, str]:
        """Return the name and the region of the cluster in GKE's labels."""
        region = gke.region_of(of.get(_LOCATION_LABEL, "")) or self._scope.region
        return of.get(CLUSTER_LABEL, ""), region


def title(row: sdk.container.Cluster) -> str:
    """Return cloudrec's name of a cluster: its label's, or else what follows the prefix of its name."""
    return labels.decode(row.resource_labels).get(TAG_CLUSTER) or row.name.removeprefix(gke.PREFIX)


def _begins(name: str, cluster: str) -> bool:
    """Return whether a name is that of a cluster, or begins with it, as GKE writes it or whole."""
    if name == cluster or name.startswith(f"{cluster}-"):
        return True
    cut = cluster[:_CUT].rstrip("-")
    return name.startswith(tuple(f"{part}{each}-" for part in _PARTS for each in (cluster, cut)))


def _is_changing(row: sdk.container.Cluster) -> bool:
    states = [row.status.name, *(pool.status.name for pool in row.node_pools)]
    return any(state != gke.RUNNING for state in states)


def _reached(networks: Mapping[str, str], rows: Iterable[Row]) -> dict[str, str]:
    """Return the clusters by the paths of subnetworks, routers and gateways in their networks."""
    return {row.path: networks[link] for row in rows for link in row.links if link in networks}
