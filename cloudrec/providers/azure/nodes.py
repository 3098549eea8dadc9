"""The GPU nodes: one pool, wherever it can be had."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from cloudrec.cloud.offers import MARKETS, ON_DEMAND, SPOT, Place, all_ways
from cloudrec.providers.azure import groups, identity, network
from cloudrec.providers.azure.aks import LABEL
from cloudrec.providers.azure.cluster import CLUSTER
from cloudrec.providers.azure.node_pools import GPU, GpuNodesDriver
from cloudrec.providers.azure.placement import PLACEMENT, PlacementDriver

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.driver import AzureDriver
    from cloudrec.providers.azure.layout import Layout

KINDS: Mapping[str, AbstractSet[str]] = {
    PLACEMENT: frozenset({groups.GROUP, groups.REGISTRATION}),
    GPU: frozenset({CLUSTER, PLACEMENT, network.SUBNET, identity.ROLE, groups.REGISTRATION}),
}

_SHORT = {SPOT: "spot", ON_DEMAND: "od"}
_DISK_GIB = 256  # which holds images; scratch files go to the size's own disks
_HASH = 6  # a pool's name may have twelve characters
# Pods that ask for a GPU tolerate it; nothing else comes to stand in their way.
TAINT = "nvidia.com/gpu=present:NoSchedule"
SPOT_TAINT = "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"  # AKS's own, on every spot node
_ANY_PRICE = -1.0  # up to that of a regular node


def resources(layout: Layout) -> list[Resource]:
    """Describe the choice between all ways of having the GPU nodes, and what each way needs."""
    found = places(layout)
    # A group is bound to wherever its first machine was to stand: each zone and each size has its own.
    close = {_where(place): _placement(layout, place) for place in found if _is_close(layout, place)}
    candidates = tuple(_candidate(layout, place, close.get(_where(place))) for place in found)
    choice = layout.resource(
        GPU,
        needs=tuple(dict.fromkeys(need for candidate in candidates for need in candidate.needs)),
        candidates=candidates,
        hourly_usd=candidates[0].hourly_usd if candidates else 0.0,
    )
    return [*close.values(), choice]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers by kind."""
    return {PLACEMENT: PlacementDriver(azure), GPU: GpuNodesDriver(azure)}


def places(layout: Layout) -> list[Place]:
    """Return the ways of having the GPU nodes, the best first."""
    markets = MARKETS[layout.cluster.capacity]
    if layout.settings.capacity_reservation_group:
        markets = (ON_DEMAND,)  # what is reserved is no spot capacity
    return all_ways(layout.instance_types, layout.gpu_zones, markets, layout.offered)


def pool_name(place: Place) -> str:
    """Return a pool's name, which every way of having the nodes has its own."""
    text = f"{place.instance_type}/{place.zone}/{place.market}".lower()
    return f"gpu{hashlib.sha256(text.encode()).hexdigest()[:_HASH]}"


def _candidate(layout: Layout, place: Place, group: Resource | None) -> Resource:
    cluster, settings = layout.cluster, layout.settings
    is_spot = place.market == SPOT
    hardware = layout.hardware[place.instance_type]
    version = cluster.kubernetes_version
    return layout.resource(
        GPU,
        f"{_where(place)}-{place.market}",
        needs=(
            layout.key(CLUSTER),
            layout.key(network.SUBNET, network.NODES),
            *identity.of_nodes(layout),
            *((layout.key(groups.REGISTRATION, groups.INFINIBAND),) if hardware.infiniband else ()),
            *((group.key,) if group is not None else ()),
        ),
        properties={
            "pool": pool_name(place),
            "instance_type": place.instance_type,
            "zone": place.zone,
            "market": place.market,
            "nodes": cluster.nodes,
            "disk_gib": _DISK_GIB,
            "labels": {**settings.labels, LABEL: "gpu"},
            "taints": [TAINT],
            "reservation": (settings.capacity_reservation_group or "").lower(),
            **({"max_price": settings.max_price or _ANY_PRICE} if is_spot else {}),
            **({"version": version} if version else {}),  # else the cluster's when the nodes are made
        },
        hourly_usd=layout.prices.nodes(place.instance_type, cluster.nodes),
    )


def _placement(layout: Layout, place: Place) -> Resource:
    return layout.resource(
        PLACEMENT,
        _where(place),
        needs=groups.needs(layout, "compute"),
        properties={"location": layout.region, "zone": place.zone},
    )


def _where(place: Place) -> str:
    return f"{place.instance_type}-{place.zone or 'anywhere'}"


def _is_close(layout: Layout, place: Place) -> bool:
    """Tell whether the nodes are to stand close together: InfiniBand joins them anyway."""
    settings, is_joined = layout.settings, layout.hardware[place.instance_type].infiniband
    is_free = place.zone and not is_joined and not settings.capacity_reservation_group
    return bool(settings.proximity and layout.cluster.nodes > 1 and is_free)
