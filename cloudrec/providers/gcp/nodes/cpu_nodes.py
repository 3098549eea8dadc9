"""The pool of CPU nodes, for pods that do not train. The cluster is created with it.

GKE taints GPU nodes only if the cluster has nodes without GPUs before them. The pool is also a resource of
the graph, so that it can be changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import total
from cloudrec.providers.gcp.api import gke, labels
from cloudrec.providers.gcp.nodes import pool_model
from cloudrec.providers.gcp.nodes.pool_model import CpuPoolProperties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.gcp.api import sdk
    from cloudrec.providers.gcp.layout import GcpLayout

CPU = "cpu-nodes"
POOL = "cpu"  # the name of the pool in GKE
_ROOT_GIB, _DISK = 100, "pd-balanced"
_ZONES = 3  # the zones of a regional cluster's CPU nodes


@dataclass(frozen=True, kw_only=True)
class FirstPool:
    """The pool that a cluster is created with.

    Attributes:
        properties: of the pool.
        labels: the labels of the pool and its machines, which hold its tags.
    """

    properties: CpuPoolProperties
    labels: Mapping[str, str]

    def requested(self) -> dict[str, Any]:
        """Return the fields by name, with the requested properties alone."""
        return {"properties": self.properties.requested(), "labels": dict(self.labels)}


def properties(layout: GcpLayout) -> CpuPoolProperties:
    """Return the requested properties of the pool."""
    settings, version = layout.settings, layout.cluster.kubernetes_version
    zones = _regional(layout) if settings.regional else [layout.home_zone]
    return CpuPoolProperties(
        path=f"{layout.cluster_path}/nodePools/{POOL}",
        pool=POOL,
        state=gke.RUNNING,
        instance_type=settings.cpu_machine_type,
        zones=zones,
        nodes=-(-settings.cpu_nodes // len(zones)),  # in each zone, rounded up
        disk_type=_DISK,
        disk_gib=_ROOT_GIB,
        labels={**settings.labels, gke.LABEL: "cpu"},
        taints=[],
        version=version or None,
    )


def _regional(layout: GcpLayout) -> list[str]:
    """Return the zones of a regional cluster's pool: those of the GPUs that also have CPU machines."""
    standard = [zone for zone in layout.gpu_zones if not gke.is_ai_zone(zone)]
    return sorted(standard[:_ZONES]) or [layout.home_zone]


def born(layout: GcpLayout) -> FirstPool:
    """Return the pool that the cluster is created with."""
    return FirstPool(properties=properties(layout), labels=labels.encode(layout.tags(layout.key(CPU))))


def body_of(given: FirstPool, account: str) -> sdk.container.NodePool:
    """Return the SDK's message for the pool.

    Args:
        given: the pool.
        account: e-mail address of the nodes' service account.
    """
    return pool_model.cpu(given.properties, labels=given.labels, service_account=account)


def hourly_usd(layout: GcpLayout) -> float | None:
    """Return the price of the nodes and their disks in USD per hour; None if a part is unknown."""
    of, prices = properties(layout), layout.prices
    count = of.nodes * len(of.zones)
    disks = prices.service(f"disk-{_DISK}-gib", _ROOT_GIB * count)
    return total(prices.nodes(of.instance_type, count), disks)
