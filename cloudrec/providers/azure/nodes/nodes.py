"""The GPU nodes: one pool, with a candidate for each placement that may have capacity."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.providers.azure import groups
from cloudrec.providers.azure.api import ids
from cloudrec.providers.azure.api.aks import CLUSTER_TYPE, LABEL
from cloudrec.providers.azure.cluster.cluster import CLUSTER
from cloudrec.providers.azure.identity import identity
from cloudrec.providers.azure.network import network
from cloudrec.providers.azure.network.placement import (
    PLACEMENT,
    AzurePlacementDriver,
    AzurePlacementProperties,
)
from cloudrec.providers.azure.nodes.end_schedule import END, AzureEndDriver, end_of
from cloudrec.providers.azure.nodes.node_pools import GPU, AzureGpuNodesDriver, AzureGpuNodesProperties
from cloudrec.providers.azure.storage import tiers
from cloudrec.providers.base.offers import CAPACITY_TYPES, ON_DEMAND, SPOT, Placement, all_ways

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.api.driver import AzureDriver
    from cloudrec.providers.azure.layout import AzureLayout

KINDS: Mapping[str, AbstractSet[str]] = {
    PLACEMENT: frozenset({groups.GROUP, groups.REGISTRATION}),
    END: frozenset({CLUSTER, identity.IDENTITY, identity.ROLE, groups.GROUP, groups.REGISTRATION}),
    GPU: frozenset({CLUSTER, END, PLACEMENT, network.SUBNET, identity.ROLE, groups.REGISTRATION}),
}

_SHORT = {SPOT: "spot", ON_DEMAND: "od"}
_HASH = 6  # characters; AKS allows 12 in a pool's name
# Only pods that request a GPU tolerate it, so that no other pod takes their place.
TAINT = "nvidia.com/gpu=present:NoSchedule"
SPOT_TAINT = "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"  # AKS sets it on every spot node
_ANY_PRICE = -1.0  # Azure's value for "up to the on-demand price"


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the GPU nodes with their candidates, and the placement groups that these need."""
    found = places(layout)
    # A group is bound to the data center of its first machine, so that each zone and size has a separate one.
    close = {_where(place): _placement(layout, place) for place in found if _is_close(layout, place)}
    candidates = tuple(_candidate(layout, place, close.get(_where(place))) for place in found)
    choice = layout.resource(
        GPU,
        needs=tuple(dict.fromkeys(need for candidate in candidates for need in candidate.needs)),
        candidates=candidates,
        hourly_usd=candidates[0].hourly_usd if candidates else None,
    )
    return [*close.values(), *_end(layout, found), choice]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers by kind."""
    return {
        PLACEMENT: AzurePlacementDriver(azure),
        END: AzureEndDriver(azure),
        GPU: AzureGpuNodesDriver(azure),
    }


def _end(layout: AzureLayout, places: Sequence[Placement]) -> list[Resource]:
    """Return the workflow that ends the cluster, if it has an end."""
    if not layout.cluster.expires:
        return []
    needs = (
        *groups.needs(layout, groups.LOGIC),
        layout.key(CLUSTER),
        layout.key(identity.IDENTITY, identity.END),
        layout.key(identity.ROLE, identity.END_ROLE),
    )
    cluster = ids.resource(layout.subscription, layout.group, CLUSTER_TYPE, layout.name)
    return [end_of(layout, cluster, [pool_name(place) for place in places], needs=needs)]


def _ends(layout: AzureLayout) -> tuple[str, ...]:
    """Return the key of the workflow, which must exist before the first GPU node; empty without an end."""
    return (layout.key(END),) if layout.cluster.expires else ()


def places(layout: AzureLayout) -> list[Placement]:
    """Return the placements to try for the GPU nodes, the best first."""
    capacity_types = CAPACITY_TYPES[layout.cluster.capacity]
    if layout.settings.capacity_reservation_group:
        capacity_types = (ON_DEMAND,)  # reserved capacity is not sold as spot
    return all_ways(layout.instance_types, layout.gpu_zones, capacity_types, layout.offered)


def pool_name(place: Placement) -> str:
    """Return a pool's name, which differs for each placement."""
    text = f"{place.instance_type}/{place.zone}/{place.capacity}".lower()
    return f"gpu{hashlib.sha256(text.encode()).hexdigest()[:_HASH]}"


def candidate_key(layout: AzureLayout, place: Placement) -> str:
    """Return the key of a candidate's pool."""
    return layout.key(GPU, _suffix(place))


def _suffix(place: Placement) -> str:
    return f"{_where(place)}-{place.capacity}"


def _candidate(
    layout: AzureLayout, place: Placement, group: Resource | None
) -> Resource[AzureGpuNodesProperties]:
    cluster, settings = layout.cluster, layout.settings
    is_spot = place.capacity == SPOT
    hardware = layout.hardware[place.instance_type]
    return layout.resource(
        GPU,
        _suffix(place),
        needs=(
            layout.key(CLUSTER),
            layout.key(network.SUBNET, network.NODES),
            *identity.of_nodes(layout),
            *_ends(layout),
            *((layout.key(groups.REGISTRATION, groups.INFINIBAND),) if hardware.infiniband else ()),
            *((group.key,) if group is not None else ()),
        ),
        properties=AzureGpuNodesProperties(
            pool=pool_name(place),
            instance_type=place.instance_type,
            zone=place.zone,
            capacity=place.capacity,
            nodes=cluster.nodes,
            disk_gib=tiers.OS_DISK_GIB,
            labels={**settings.labels, LABEL: "gpu"},
            taints=[TAINT],
            reservation=(settings.capacity_reservation_group or "").lower(),
            max_price=settings.max_price or _ANY_PRICE if is_spot else None,
            version=cluster.kubernetes_version or None,
        ),
        hourly_usd=layout.prices.nodes(place.instance_type, cluster.nodes, place.capacity),
        node_type=place.instance_type,
        gpus=hardware.gpus,
        pool=pool_name(place),
        nodes=cluster.nodes,
        priced=layout.prices.priced(place.instance_type, place.capacity),
    )


def _placement(layout: AzureLayout, place: Placement) -> Resource[AzurePlacementProperties]:
    return layout.resource(
        PLACEMENT,
        _where(place),
        needs=groups.needs(layout, "compute"),
        properties=AzurePlacementProperties(
            location=layout.region, zone=place.zone, instance_type=place.instance_type
        ),
        hourly_usd=FREE,
    )


def _where(place: Placement) -> str:
    return f"{place.instance_type}-{place.zone or 'anywhere'}"


def _is_close(layout: AzureLayout, place: Placement) -> bool:
    """Return whether the nodes of a placement share a proximity placement group.

    Nodes with InfiniBand need none: Azure places the nodes of one pool on one fabric.
    """
    settings, is_joined = layout.settings, layout.hardware[place.instance_type].infiniband
    is_free = place.zone and not is_joined and not settings.capacity_reservation_group
    return bool(settings.proximity and layout.cluster.nodes > 1 and is_free)
