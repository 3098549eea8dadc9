"""GKE's state: clusters with their node pools, and operations."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from google.cloud.container_v1.types import Cluster, NodePool, Operation

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.gcp.api import projects
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import Entry, inventory
from cloudrec_sandbox.gcp.resources.places import ZONES, region_of
from cloudrec_sandbox.gcp.services.iam.members import pool_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.gcp.api.world import World

_URL = "https://container.googleapis.com/v1"
_PARENT = re.compile(r"projects/([^/]+)/locations/([^/]+)")
_CLUSTER = re.compile(r"projects/[^/]+/locations/[^/]+/clusters/[^/]+")
_POOL = re.compile(rf"({_CLUSTER.pattern})/nodePools/([^/]+)")


@dataclass
class PoolState:
    """One node pool.

    Attributes:
        message: the pool as GKE shows it.
        wanted: the number of nodes in each zone.
        groups: the path of each zone's instance group manager.
        waiting_since: when its creation first found no machines.
        lost: by group, the names of machines that were lost and not made again yet.
        is_refilling: whether its groups try to make lost machines again.
    """

    message: NodePool
    wanted: int
    groups: dict[str, str] = field(default_factory=dict)
    waiting_since: float = 0.0
    lost: dict[str, list[str]] = field(default_factory=dict)
    is_refilling: bool = False

    @property
    def name(self) -> str:
        """Return its name in the cluster."""
        return str(self.message.name)


@dataclass
class ClusterState:
    """One cluster, as GKE shows it but without its pools; `running` has the paths of its operations."""

    path: str
    message: Cluster
    network: str
    subnetwork: str
    pools: dict[str, PoolState] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return its name in the location."""
        return str(self.message.name)

    @property
    def project(self) -> str:
        """Return the project's id."""
        return self.path.split("/")[1]

    @property
    def location(self) -> str:
        """Return the zone or the region."""
        return str(self.message.location)

    @property
    def region(self) -> str:
        """Return its region."""
        return region_of(self.location)

    def tag(self) -> str:
        # GKE shortens a cluster's name in the names of its firewall rules and machines.
        """Return the prefix of the names of what GKE makes for the cluster."""
        return f"gke-{self.name[:20].rstrip('-')}-{self.message.id[:8]}"

    def shown(self) -> Cluster:
        """Return the cluster as GKE shows it: with its pools."""
        message = Cluster(self.message)
        message.node_pools = [pool.message for pool in self.pools.values()]
        message.instance_group_urls = [
            url for pool in self.pools.values() for url in pool.message.instance_group_urls
        ]
        return message


@dataclass
class Record:
    """One operation, as GKE shows it, with its cluster; `pool` is '' if it is for the cluster itself."""

    message: Operation
    cluster: str
    pool: str = ""


@dataclass
class Gke:
    """All clusters and operations by path."""

    clusters: dict[str, ClusterState] = field(default_factory=dict)
    operations: dict[str, Record] = field(default_factory=dict)


class Place(NamedTuple):
    """A project and a location in it."""

    project: str
    location: str


def place(parent: str) -> Place:
    """Return the project and location of projects/P/locations/L; GcpError for another form."""
    found = _PARENT.fullmatch(parent)
    if found is None:
        raise GcpError("INVALID_ARGUMENT", f'Name "{parent}" is not of the form "projects/*/locations/*".')
    return Place(found[1], found[2])


def need_cluster(world: World, name: str) -> ClusterState:
    """Return the cluster of projects/P/locations/L/clusters/C; GcpError if there is none."""
    if _CLUSTER.fullmatch(name) is None:
        form = "projects/*/locations/*/clusters/*"
        raise GcpError("INVALID_ARGUMENT", f'Name "{name}" is not of the form "{form}".')
    cluster = world.state(Gke).clusters.get(name)
    if cluster is None:
        raise not_found(name)
    return cluster


def need_pool(world: World, name: str) -> tuple[ClusterState, PoolState]:
    """Return the pool of projects/P/locations/L/clusters/C/nodePools/N; GcpError if there is none."""
    found = _POOL.fullmatch(name)
    if found is None:
        form = "projects/*/locations/*/clusters/*/nodePools/*"
        raise GcpError("INVALID_ARGUMENT", f'Name "{name}" is not of the form "{form}".')
    cluster = need_cluster(world, found[1])
    if found[2] not in cluster.pools:
        raise not_found(name)
    return cluster, cluster.pools[found[2]]


def not_found(name: str) -> GcpError:
    """Return the refusal for an unknown name."""
    return GcpError("NOT_FOUND", f"Not found: {name}.")


def link(world: World, path: str) -> str:
    """Return the URL of a path in GKE's form: with the project's number, and zones for locations."""
    _, project, _, location, *rest = path.split("/")
    found = projects.find(world, project)
    where = "zones" if location in ZONES else "locations"
    return "/".join((_URL, "projects", found.number if found else project, where, location, *rest))


def moment(world: World) -> str:
    """Return the present time, as GKE writes it."""
    return as_datetime(world.now()).isoformat()


@pool_source
def identity_pools(world: World) -> Iterator[str]:
    """Yield the workload identity pools of the clusters."""
    for cluster in world.state(Gke).clusters.values():
        yield cluster.message.workload_identity_config.workload_pool


@inventory
def existing(world: World) -> Iterator[Entry]:
    """Yield the clusters and their pools."""
    for path, cluster in world.state(Gke).clusters.items():
        stopping = cluster.message.status == Cluster.Status.STOPPING
        yield Entry("container", "clusters", path, stopping)
        for pool in cluster.pools.values():
            ending = stopping or pool.message.status == NodePool.Status.STOPPING
            yield Entry("container", "nodePools", f"{path}/nodePools/{pool.name}", ending)
