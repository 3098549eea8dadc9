"""Size the GPU pools, and scale them to zero nodes, with only the guard's permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.api_core import exceptions as api

from cloudrec.engine.graph import TAG_KEY
from cloudrec.providers.base.driver import is_ours
from cloudrec.providers.base.protocol import Halt, PoolSize
from cloudrec.providers.gcp import errors
from cloudrec.providers.gcp.api import gke, labels, sdk
from cloudrec.providers.gcp.nodes.node_pools import GPU

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudrec.providers.gcp.api.client import Gcp

# The guard's variable with the path of its cluster: the guard has no permission to list clusters.
CLUSTER = "CLOUDREC_GKE_CLUSTER"


def halt(gcp: Gcp, title: str, *, cluster: str = "") -> Halt:
    """Set the size of each GPU pool to zero; a pool that GKE is changing now is left for a later call.

    Args:
        gcp: the project.
        title: the name of the cluster.
        cluster: its path; if empty, it is searched in the region, which needs the permission to list.

    Returns:
        The paths of the pools that are being scaled, and the reasons for those that are not.
    """
    pools, left = list[str](), list[str]()
    for path, pool in _gpu_pools(gcp, title, cluster):
        why = _scaled(gcp, path, pool, 0)
        if why:
            left.append(f"pool {pool.name}: {why}")
        else:
            pools.append(path)
    return Halt(pools=tuple(pools), left=tuple(left))


def sizes(gcp: Gcp, title: str, *, cluster: str = "") -> Sequence[PoolSize]:
    """Return the GPU pools, without their sizes; the arguments are `halt`'s.

    A pool has only the number of nodes that it was created with. Its size is that of its managed instance
    group, which the guard may not read.
    """
    return [
        PoolSize(name=pool.name, nodes=None, problem=pool.status_message)
        for _, pool in _gpu_pools(gcp, title, cluster)
    ]


def resize(gcp: Gcp, title: str, name: str, nodes: int, *, cluster: str = "") -> str:
    """Begin to give a pool another number of nodes; return why GKE cannot do so now, or an empty text."""
    for path, pool in _gpu_pools(gcp, title, cluster):
        if pool.name == name:
            return _scaled(gcp, path, pool, nodes)
    return "it does not exist"


def _gpu_pools(gcp: Gcp, title: str, cluster: str) -> Iterator[tuple[str, sdk.container.NodePool]]:
    """Yield the GPU pools of a cluster with their paths."""
    for row in clusters(gcp, title, cluster):
        path = f"projects/{gcp.project}/locations/{row.location}/clusters/{row.name}"
        yield from (
            (f"{path}/nodePools/{pool.name}", pool) for pool in row.node_pools if _trains(pool, title)
        )


def clusters(gcp: Gcp, title: str, path: str) -> Sequence[sdk.container.Cluster]:
    """Return the cluster at a path, or if it is empty those of this name in the region."""
    if path:
        row = gcp.get(gcp.container.get_cluster, sdk.container.GetClusterRequest(name=path))
        found = [row] if row is not None else []
    else:
        found = gke.listed(gcp)
    return [row for row in found if is_ours(labels.decode(row.resource_labels), title)]


def _trains(pool: sdk.container.NodePool, title: str) -> bool:
    tags = labels.decode(pool.config.resource_labels)
    return is_ours(tags, title) and tags.get(TAG_KEY, "").partition("/")[0] == GPU


def _scaled(gcp: Gcp, path: str, pool: sdk.container.NodePool, nodes: int) -> str:
    """Set the size of a pool; return the reason if GKE refuses, else an empty text."""
    if pool.autoscaling.enabled:
        # Flex-start: the autoscaler owns the size, and removes nodes without pods.
        return "its nodes are removed automatically when no pod needs them"
    request = sdk.container.SetNodePoolSizeRequest(name=path, node_count=nodes)
    try:
        gcp.call(gcp.container.set_node_pool_size, request)
    except api.NotFound:
        return ""
    except (api.FailedPrecondition, api.Aborted) as error:
        return f"another change of the cluster is in progress ({error.reason or error.code})"
    except api.GoogleAPICallError as error:
        return errors.explain(error).message  # the other pools are still scaled
    return ""
