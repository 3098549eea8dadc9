"""Scaling what trains to no nodes, with no more permissions than that takes: the guard's are few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.api_core import exceptions as api

from cloudrec.cloud.driver import is_ours
from cloudrec.engine.graph import TAG_KEY
from cloudrec.provider import Halt
from cloudrec.providers.gcp import gke, labels
from cloudrec.providers.gcp.node_pools import GPU

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.providers.gcp.client import Gcp

CLUSTER = "CLOUDREC_GKE_CLUSTER"  # the variable that tells the guard its cluster's path: it may not list any


def halt(gcp: Gcp, title: str, *, cluster: str = "") -> Halt:
    """Ask for no nodes in each GPU pool of a cluster; what GKE is at work on is left for later.

    Args:
        gcp: the project.
        title: the cluster's name.
        cluster: its path; looked for in the region when empty, which takes the permission to list.
    """
    pools, left = list[str](), list[str]()
    for row in _clusters(gcp, title, cluster):
        path = f"projects/{gcp.project}/locations/{row.location}/clusters/{row.name}"
        for pool in row.node_pools:
            if not _trains(pool, title):
                continue
            why = _scaled(gcp, f"{path}/nodePools/{pool.name}", pool)
            if why:
                left.append(f"pool {pool.name}: {why}")
            else:
                pools.append(f"{path}/nodePools/{pool.name}")
    return Halt(pools=tuple(pools), left=tuple(left))


def _clusters(gcp: Gcp, title: str, path: str) -> Sequence[Any]:
    calls = gcp.client(gke.CONTAINER)
    found = [gcp.get(calls.get_cluster, name=path)] if path else gke.listed(gcp)
    return [row for row in found if row is not None and is_ours(labels.decode(row.resource_labels), title)]


def _trains(pool: Any, title: str) -> bool:  # noqa: ANN401 - the SDK's message
    tags = labels.decode(pool.config.resource_labels)
    return is_ours(tags, title) and tags.get(TAG_KEY, "").partition("/")[0] == GPU


def _scaled(gcp: Gcp, path: str, pool: Any) -> str:  # noqa: ANN401 - the SDK's message
    """Ask for no nodes; return why not where GKE does not do it now."""
    if pool.autoscaling.enabled:
        return "its nodes go by themselves once no pod needs them"
    try:
        gcp.call(gcp.client(gke.CONTAINER).set_node_pool_size, name=path, node_count=0)
    except api.NotFound:
        return ""
    except (api.FailedPrecondition, api.Aborted) as error:
        return f"GKE is still at work on the cluster ({error.reason or error.code})"
    return ""
