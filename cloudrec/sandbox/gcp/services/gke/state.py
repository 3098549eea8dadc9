"""What GKE knows: clusters with their node pools, and operations."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from google.cloud.container_v1.types import Cluster, NodePool, Operation

from cloudrec.sandbox.clock import as_datetime
from cloudrec.sandbox.gcp import projects
from cloudrec.sandbox.gcp.errors import GcpError
from cloudrec.sandbox.gcp.places import ZONES, region_of
from cloudrec.sandbox.gcp.registry import Entry, inventory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.sandbox.gcp.world import World

_URL = "https://container.googleapis.com/v1"
_PARENT = re.compile(r"projects/([^/]+)/locations/([^/]+)")
_CLUSTER = re.compile(r"projects/[^/]+/locations/[^/]+/clusters/[^/]+")
_POOL = re.compile(rf"({_CLUSTER.pattern})/nodePools/([^/]+)")


@dataclass
class PoolState:
    """One node pool.

    Attributes:
        message: the pool as it is shown.
        wanted: how many nodes each zone shall have.
        groups: the path of each zone's instance group manager.
        waiting_since: when its creation first found no machines.
    """

    message: NodePool
    wanted: int
    groups: dict[str, str] = field(default_factory=dict)
    waiting_since: float = 0.0

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return str(self.message.name)


@dataclass
class ClusterState:
    """One cluster: as it is shown but for its pools; `running` are the operations in flight, by path."""

    path: str
    message: Cluster
    network: str
    subnetwork: str
    pools: dict[str, PoolState] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name in the location."""
        return str(self.message.name)

    @property
    def project(self) -> str:
        """The project's id."""
        return self.path.split("/")[1]

    @property
    def location(self) -> str:
        """The zone or the region."""
        return str(self.message.location)

    @property
    def region(self) -> str:
        """The region that it is in."""
        return region_of(self.location)

    def tag(self) -> str:
        """The words that GKE puts before the name of what it makes for the cluster."""
        return f"gke-{self.name[:20].rstrip('-')}-{self.message.id[:8]}"

    def shown(self) -> Cluster:
        """The cluster as it is shown: with its pools."""
        message = Cluster(self.message)
        message.node_pools = [pool.message for pool in self.pools.values()]
        message.instance_group_urls = [
            url for pool in self.pools.values() for url in pool.message.instance_group_urls
        ]
        return message


@dataclass
class Record:
    """One operation: as it is shown, and what it is about; `pool` is '' for the cluster itself."""

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
    """What projects/P/locations/L names; GcpError for another form."""
    found = _PARENT.fullmatch(parent)
    if found is None:
        raise GcpError("INVALID_ARGUMENT", f'Name "{parent}" is not of the form "projects/*/locations/*".')
    return Place(found[1], found[2])


def need_cluster(world: World, name: str) -> ClusterState:
    """The cluster of projects/P/locations/L/clusters/C; GcpError where there is none."""
    if _CLUSTER.fullmatch(name) is None:
        form = "projects/*/locations/*/clusters/*"
        raise GcpError("INVALID_ARGUMENT", f'Name "{name}" is not of the form "{form}".')
    cluster = world.state(Gke).clusters.get(name)
    if cluster is None:
        raise not_found(name)
    return cluster


def need_pool(world: World, name: str) -> tuple[ClusterState, PoolState]:
    """The pool of projects/P/locations/L/clusters/C/nodePools/N; GcpError where there is none."""
    found = _POOL.fullmatch(name)
    if found is None:
        form = "projects/*/locations/*/clusters/*/nodePools/*"
        raise GcpError("INVALID_ARGUMENT", f'Name "{name}" is not of the form "{form}".')
    cluster = need_cluster(world, found[1])
    if found[2] not in cluster.pools:
        raise not_found(name)
    return cluster, cluster.pools[found[2]]


def not_found(name: str) -> GcpError:
    """The refusal of what there is not."""
    return GcpError("NOT_FOUND", f"Not found: {name}.")


def link(world: World, path: str) -> str:
    """The URL of a path as GKE writes it: with the project's number, and zones in the place of locations."""
    _, project, _, location, *rest = path.split("/")
    found = projects.find(world, project)
    where = "zones" if location in ZONES else "locations"
    return "/".join((_URL, "projects", found.number if found else project, where, location, *rest))


def moment(world: World) -> str:
    """Now, as GKE writes it."""
    return as_datetime(world.now()).isoformat()


@inventory
def things(world: World) -> Iterator[Entry]:
    """The clusters and their pools."""
    for path, cluster in world.state(Gke).clusters.items():
        stopping = cluster.message.status == Cluster.Status.STOPPING
        yield Entry("container", "clusters", path, stopping)
        for pool in cluster.pools.values():
            ending = stopping or pool.message.status == NodePool.Status.STOPPING
            yield Entry("container", "nodePools", f"{path}/nodePools/{pool.name}", ending)
