"""The nodes: a small group for what is no training, and one of GPU nodes, wherever it can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.offers import MARKETS, ON_DEMAND, SPOT, Place, all_ways
from cloudrec.providers.aws import (
    addons,
    endpoints,
    firewall,
    identity,
    network,
    offers,
    routes,
    templates,
)
from cloudrec.providers.aws.cluster import CLUSTER
from cloudrec.providers.aws.launch_templates import (
    PLACEMENT,
    TAG_DIGEST,
    TEMPLATE,
    LaunchTemplateDriver,
    PlacementGroupDriver,
)
from cloudrec.providers.aws.node_groups import CPU, GPU, TAG_TYPE, CpuNodesDriver, GpuNodesDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.driver import AwsDriver
    from cloudrec.providers.aws.layout import Layout

_NODES = frozenset(
    {
        CLUSTER,
        addons.ADDON,
        identity.ROLE,
        TEMPLATE,
        PLACEMENT,
        network.SUBNET,
        firewall.GROUP,
        routes.ROUTE,
        endpoints.ENDPOINT,
    }
)
KINDS: Mapping[str, AbstractSet[str]] = {
    TEMPLATE: frozenset({CLUSTER, firewall.GROUP, PLACEMENT}),
    PLACEMENT: frozenset(),
    CPU: _NODES,
    GPU: _NODES,
}

_CPU_ROOT_GIB = 50
_SHORT = {SPOT: "spot", ON_DEMAND: "od", offers.BLOCK: "block"}
# Pods that ask for a GPU tolerate it; nothing else comes to stand in their way.
_TAINTS = ({"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"},)
LABEL = "cloudrec.io/nodes"  # cpu or gpu


def resources(layout: Layout) -> list[Resource]:
    """Describe placement groups, launch templates and node groups."""
    return [*_cpu(layout), *_gpu(layout)]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    return {
        TEMPLATE: LaunchTemplateDriver(aws),
        PLACEMENT: PlacementGroupDriver(aws),
        CPU: CpuNodesDriver(aws),
        GPU: GpuNodesDriver(aws),
    }


def places(layout: Layout) -> list[Place]:
    """Return the ways of having the GPU nodes, the best first."""
    settings, markets = layout.settings, MARKETS[layout.cluster.capacity]
    if settings.capacity_block_id:
        markets = (offers.BLOCK,)
    elif settings.capacity_reservation_id:
        markets = (ON_DEMAND,)  # what is reserved is no spot capacity
    return all_ways(layout.instance_types, layout.gpu_zones, markets, layout.offered)


def _cpu(layout: Layout) -> list[Resource]:
    settings = layout.settings
    template = _template(layout, "cpu", {"root_gib": _CPU_ROOT_GIB})
    first = settings.cpu_instance_types[0]
    group = layout.resource(
        CPU,
        needs=(*_needs(layout, layout.zones), template.key),
        properties={
            "group": "cpu",
            "gpu": False,
            "instance_types": list(settings.cpu_instance_types),
            "market": ON_DEMAND,
            "nodes": settings.cpu_nodes,
            **_version(layout),
            "labels": {**settings.labels, LABEL: "cpu"},
            "taints": [],
            "template": template.properties["digest"],
        },
        tags={TAG_DIGEST: template.properties["digest"], TAG_TYPE: first},
        hourly_usd=layout.prices.nodes(first, settings.cpu_nodes),
    )
    return [template, group]


def _gpu(layout: Layout) -> list[Resource]:
    """Describe the choice between all ways of having the GPU nodes, and what each way needs.

    A placement group cannot span zones, and what is left of an attempt in one zone must not stand in the
    way of the next: every zone has its own, and so has every template.
    """
    ways = places(layout)
    zones = sorted({way.zone for way in ways if layout.hardware[way.instance_type].efa})
    if layout.settings.capacity_block_id:  # its nodes stand close together anyway
        zones = []
    groups = {zone: layout.resource(PLACEMENT, zone) for zone in zones}
    made: dict[tuple[str, str], Resource] = {}
    for way in ways:
        hardware = layout.hardware[way.instance_type]
        group = groups.get(way.zone) if hardware.efa else None
        made.setdefault((way.instance_type, way.zone), _gpu_template(layout, way, group))
    candidates = tuple(_candidate(layout, way, made[way.instance_type, way.zone]) for way in ways)
    choice = layout.resource(
        GPU,
        needs=(
            *_needs(layout, sorted({way.zone for way in ways})),
            *(template.key for template in made.values()),
            *(group.key for group in groups.values()),
        ),
        candidates=candidates,
        hourly_usd=candidates[0].hourly_usd if candidates else 0.0,
    )
    return [*groups.values(), *made.values(), choice]


def _gpu_template(layout: Layout, way: Place, group: Resource | None) -> Resource:
    settings = layout.settings
    of = templates.gpu_properties(
        layout.hardware[way.instance_type],
        root_gib=settings.gpu_root_gib,
        market=way.market,
        reservation=settings.capacity_block_id or settings.capacity_reservation_id or "",
    )
    return _template(layout, f"gpu-{way.instance_type}-{way.zone}", of, *([group.key] if group else []))


def _candidate(layout: Layout, way: Place, template: Resource) -> Resource:
    cluster = layout.cluster
    plain = way.instance_type.replace(".", "-")
    zone = way.zone.removeprefix(layout.region).lstrip("-")
    return layout.resource(
        GPU,
        f"{way.instance_type}-{way.zone}-{way.market}",
        needs=(*_needs(layout, [way.zone]), template.key),
        properties={
            "group": f"{identity.GPU_GROUPS}{plain}-{zone}-{_SHORT[way.market]}",  # EKS allows 63 characters
            "gpu": True,
            "instance_type": way.instance_type,
            "zone": way.zone,
            "market": way.market,
            "nodes": cluster.nodes,
            **_version(layout),
            "max_price": layout.settings.max_price,
            "labels": {**layout.settings.labels, LABEL: "gpu"},
            "taints": [*_TAINTS],
            "template": template.properties["digest"],
        },
        tags={TAG_DIGEST: template.properties["digest"], TAG_TYPE: way.instance_type},
        hourly_usd=layout.prices.nodes(way.instance_type, cluster.nodes),
    )


def _template(layout: Layout, suffix: str, of: Mapping[str, Any], *needs: str) -> Resource:
    digest = templates.digest(of)
    return layout.resource(
        TEMPLATE,
        suffix,
        needs=(layout.key(CLUSTER), layout.key(firewall.GROUP, "nodes"), *needs),
        properties={"of": dict(of), "digest": digest},
        tags={TAG_DIGEST: digest},
    )


def _needs(layout: Layout, zones: Sequence[str]) -> tuple[str, ...]:
    """What nodes of these zones need to join the cluster: a role, addresses, and a way to what they load."""
    return (
        layout.key(CLUSTER),
        layout.key(identity.ROLE, "node"),
        *network.private(layout, zones),
        layout.key(addons.ADDON, addons.CNI),
        *((layout.key(routes.ROUTE, "private"),) if layout.settings.nat else ()),
        *layout.keys(endpoints.ENDPOINT, layout.settings.endpoints),
    )


def _version(layout: Layout) -> dict[str, str]:
    """The version of Kubernetes, where one is named; else that of the cluster when the nodes are made."""
    version = layout.cluster.kubernetes_version
    return {"version": version} if version else {}
