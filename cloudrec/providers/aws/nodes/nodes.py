"""The nodes: a group of CPU nodes, and a choice of groups of GPU nodes by type, zone and capacity type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE, times
from cloudrec.engine.graph import Prepaid
from cloudrec.providers.aws import offers
from cloudrec.providers.aws.cluster import addons
from cloudrec.providers.aws.cluster.cluster import CLUSTER
from cloudrec.providers.aws.identity import identity, policies
from cloudrec.providers.aws.network import endpoints, firewall, network, routes
from cloudrec.providers.aws.nodes import templates
from cloudrec.providers.aws.nodes.end_schedule import END, AwsEndDriver, AwsEndProperties
from cloudrec.providers.aws.nodes.launch_templates import (
    PLACEMENT,
    TAG_DIGEST,
    TEMPLATE,
    LaunchTemplateDriver,
    LaunchTemplateProperties,
    PlacementGroupDriver,
)
from cloudrec.providers.aws.nodes.node_groups import (
    CPU,
    GPU,
    TAG_TYPE,
    AwsCpuNodesDriver,
    AwsCpuNodesProperties,
    AwsGpuNodesDriver,
    AwsGpuNodesProperties,
)
from cloudrec.providers.base.offers import CAPACITY_TYPES, ON_DEMAND, SPOT, Placement, all_ways

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_eks.type_defs import TaintTypeDef

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.api.driver import AwsDriver
    from cloudrec.providers.aws.layout import AwsLayout

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
    END: frozenset({identity.ROLE}),
    GPU: _NODES | {END},
}

_CPU_ROOT_GIB = 50
_SHORT = {SPOT: "spot", ON_DEMAND: "od", offers.BLOCK: "block"}
# Only pods that request a GPU tolerate the taint, so that others do not take the nodes' CPUs.
_TAINTS: tuple[TaintTypeDef, ...] = ({"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"},)
LABEL = "cloudrec.io/nodes"  # label of every node: cpu or gpu


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe placement groups, launch templates, node groups, and the schedules that end the cluster."""
    return [*_cpu(layout), *_end(layout), *_gpu(layout)]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    return {
        TEMPLATE: LaunchTemplateDriver(aws),
        PLACEMENT: PlacementGroupDriver(aws),
        CPU: AwsCpuNodesDriver(aws),
        END: AwsEndDriver(aws),
        GPU: AwsGpuNodesDriver(aws),
    }


def places(layout: AwsLayout) -> list[Placement]:
    """Return the candidates for the GPU nodes (type, zone, capacity type), the best first."""
    settings, capacity_types = layout.settings, CAPACITY_TYPES[layout.cluster.capacity]
    if (block := layout.cluster.block) is not None:
        return [Placement(instance_type=block.instance_type, zone=block.zone, capacity=offers.BLOCK)]
    if settings.capacity_block_id:
        capacity_types = (offers.BLOCK,)
    elif settings.capacity_reservation_id:
        capacity_types = (ON_DEMAND,)  # EC2 has no reservations of spot nodes
    return all_ways(layout.instance_types, layout.gpu_zones, capacity_types, layout.offered)


def _cpu(layout: AwsLayout) -> list[Resource]:
    settings = layout.settings
    template = _template(layout, "cpu", templates.TemplateContent(root_gib=_CPU_ROOT_GIB))
    # The group's price is that of the first type, although EKS may choose another one.
    first = settings.cpu_instance_types[0]
    digest = template.properties.digest
    asked = AwsCpuNodesProperties(
        group="cpu",
        gpu=False,
        instance_types=list(settings.cpu_instance_types),
        capacity=ON_DEMAND,
        nodes=settings.cpu_nodes,
        version=layout.cluster.kubernetes_version,
        labels={**settings.labels, LABEL: "cpu"},
        taints=[],
        template=digest,
    )
    group = layout.resource(
        CPU,
        needs=(*_needs(layout, layout.zones), template.key),
        properties=asked,
        tags={TAG_DIGEST: digest, TAG_TYPE: first},
        hourly_usd=layout.prices.nodes(first, settings.cpu_nodes),
        node_type=first,
        pool=asked.group,
        nodes=settings.cpu_nodes,
    )
    return [template, group]


def _end(layout: AwsLayout) -> list[Resource]:
    """Describe the schedules that end the cluster, if it has an end."""
    if not layout.cluster.expires:
        return []
    block = layout.cluster.block
    is_later = block is not None and not block.is_active
    asked = AwsEndProperties(
        group=layout.name,
        expires=layout.cluster.expires,
        starts=block.start if block is not None and is_later else "",
        nodes=layout.cluster.nodes if is_later else 0,
        node_groups=tuple(sorted(_group_name(layout, way) for way in places(layout))),
        role=policies.role_arn(layout, policies.END),
    )
    needs = (layout.key(identity.ROLE, policies.END),)
    return [layout.resource(END, needs=needs, properties=asked, hourly_usd=FREE)]


def _ends(layout: AwsLayout) -> tuple[str, ...]:
    """Return the key of the schedules, which must exist before the first GPU node; empty without an end."""
    return (layout.key(END),) if layout.cluster.expires else ()


def _group_name(layout: AwsLayout, way: Placement) -> str:
    """Return the name of a candidate's group of nodes; EKS allows 63 characters."""
    zone = way.zone.removeprefix(layout.region).lstrip("-")
    return f"{policies.GPU_GROUPS}{way.instance_type.replace('.', '-')}-{zone}-{_SHORT[way.capacity]}"


def _gpu(layout: AwsLayout) -> list[Resource]:
    """Describe the GPU nodes as a choice of candidates, with the candidates' templates and placement groups.

    Every zone has its own placement group, since a placement group cannot span zones. Every type and zone has
    its own template: remains of an attempt in one zone cannot block the next attempt.
    """
    ways = places(layout)
    zones = sorted({way.zone for way in ways if layout.hardware[way.instance_type].efa})
    # AWS places the nodes of a block close together.
    if layout.cluster.block is not None or layout.settings.capacity_block_id:
        zones = []
    groups = {zone: layout.resource(PLACEMENT, zone, hourly_usd=FREE) for zone in zones}
    made: dict[tuple[str, str], Resource[LaunchTemplateProperties]] = {}
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
            *_ends(layout),
        ),
        candidates=candidates,
        hourly_usd=candidates[0].hourly_usd if candidates else None,
    )
    return [*groups.values(), *made.values(), choice]


def _gpu_template(
    layout: AwsLayout, way: Placement, group: Resource | None
) -> Resource[LaunchTemplateProperties]:
    settings, block = layout.settings, layout.cluster.block
    named = settings.capacity_block_id or settings.capacity_reservation_id or ""
    of = templates.gpu_content(
        layout.hardware[way.instance_type],
        root_gib=settings.gpu_root_gib,
        capacity=way.capacity,
        reservation=block.id if block is not None else named,
        pulls_in_parallel=settings.image_pull == "parallel",
    )
    return _template(layout, f"gpu-{way.instance_type}-{way.zone}", of, *([group.key] if group else []))


def _candidate(
    layout: AwsLayout, way: Placement, template: Resource[LaunchTemplateProperties]
) -> Resource[AwsGpuNodesProperties]:
    cluster, block = layout.cluster, layout.cluster.block
    digest = template.properties.digest
    asked = AwsGpuNodesProperties(
        group=_group_name(layout, way),
        gpu=True,
        instance_type=way.instance_type,
        zone=way.zone,
        capacity=way.capacity,
        # EC2 launches nothing in a block before it begins.
        nodes=cluster.nodes if block is None or block.is_active else 0,
        version=cluster.kubernetes_version,
        max_price=layout.settings.max_price,
        labels={**layout.settings.labels, LABEL: "gpu"},
        taints=[*_TAINTS],
        # There is no spare GPU capacity, quota or reservation for a node more than there are.
        strategy="MINIMAL",
        template=digest,
    )
    return layout.resource(
        GPU,
        f"{way.instance_type}-{way.zone}-{way.capacity}",
        needs=(*_needs(layout, [way.zone]), template.key, *_ends(layout)),
        properties=asked,
        tags={TAG_DIGEST: digest, TAG_TYPE: way.instance_type},
        hourly_usd=layout.prices.nodes(way.instance_type, cluster.nodes, way.capacity, way.zone),
        node_type=way.instance_type,
        gpus=layout.hardware[way.instance_type].gpus,
        pool=asked.group,
        nodes=cluster.nodes,
        priced=layout.prices.priced(way.instance_type, way.capacity, way.zone),
        prepaid=_prepaid(layout, way),
    )


def _prepaid(layout: AwsLayout, way: Placement) -> Prepaid | None:
    """Return what the nodes of a block were paid for in advance; None for other nodes."""
    block = layout.cluster.block
    if way.capacity != offers.BLOCK:
        return None
    return Prepaid(hourly_usd=times(layout.cluster.nodes, block.node_usd if block is not None else None))


def _template(
    layout: AwsLayout, suffix: str, of: templates.TemplateContent, *needs: str
) -> Resource[LaunchTemplateProperties]:
    digest = templates.digest(of)
    return layout.resource(
        TEMPLATE,
        suffix,
        needs=(layout.key(CLUSTER), layout.key(firewall.GROUP, "nodes"), *needs),
        properties=LaunchTemplateProperties(of=of, digest=digest),
        tags={TAG_DIGEST: digest},
        hourly_usd=FREE,
    )


def _needs(layout: AwsLayout, zones: Sequence[str]) -> tuple[str, ...]:
    """Return the needs of nodes in these zones: cluster, role, subnets, plugins, NAT and endpoints."""
    return (
        layout.key(CLUSTER),
        layout.key(identity.ROLE, "node"),
        *network.private(layout, zones),
        layout.key(addons.ADDON, addons.CNI),
        layout.key(addons.ADDON, addons.AGENT),  # gives the network plugin its role
        *((layout.key(routes.ROUTE, "private"),) if layout.settings.nat else ()),
        *layout.keys(endpoints.ENDPOINT, endpoints.offered(layout)),
    )
