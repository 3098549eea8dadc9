"""The nodes for what is no training: a pool that the cluster is born with, and that is a resource of its own.

GKE taints GPU nodes only where there are others when they are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.providers.gcp import gke, labels, pool_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.gcp.layout import Layout

CPU = "cpu-nodes"
POOL = "cpu"  # the pool's name
_ROOT_GIB, _DISK = 100, "pd-balanced"
_ZONES = 3  # of a regional cluster


def properties(layout: Layout) -> dict[str, Any]:
    """Return what is asked for."""
    settings, version = layout.settings, layout.cluster.kubernetes_version
    zones = sorted(layout.gpu_zones[:_ZONES]) if settings.regional else [layout.home_zone]
    return {
        "path": f"{layout.cluster_path}/nodePools/{POOL}",
        "pool": POOL,
        "state": gke.RUNNING,
        "instance_type": settings.cpu_machine_type,
        "zones": zones,
        "nodes": -(-settings.cpu_nodes // len(zones)),  # in each zone
        "disk_type": _DISK,
        "disk_gib": _ROOT_GIB,
        "labels": {**settings.labels, gke.LABEL: "cpu"},
        "taints": [],
        **({"version": version} if version else {}),
    }


def born(layout: Layout) -> dict[str, Any]:
    """Return what a cluster must know to be born with the pool: its properties and its labels."""
    return {"properties": properties(layout), "labels": labels.encode(layout.tags(layout.key(CPU)))}


def body_of(given: Mapping[str, Any], account: str) -> dict[str, Any]:
    """Return the pool as the SDK takes it.

    Args:
        given: from `born`.
        account: e-mail address of the service account that the nodes have.
    """
    return pool_model.cpu(given["properties"], labels=given["labels"], service_account=account)


def hourly_usd(layout: Layout) -> float:
    """Return what the nodes and their disks cost."""
    of, prices = properties(layout), layout.prices
    count = of["nodes"] * len(of["zones"])
    return prices.nodes(of["instance_type"], count) + prices.service(f"disk-{_DISK}-gib", _ROOT_GIB * count)
