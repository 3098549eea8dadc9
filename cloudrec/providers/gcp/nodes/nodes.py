"""The node pools: a small one of CPU nodes, and one of GPU nodes in the first place that has capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.cost import total
from cloudrec.errors import SpecError
from cloudrec.providers.base.offers import ON_DEMAND, SPOT
from cloudrec.providers.gcp.api import gke, ids
from cloudrec.providers.gcp.api.gke import CLUSTER
from cloudrec.providers.gcp.identity import identity
from cloudrec.providers.gcp.network import network, placement
from cloudrec.providers.gcp.nodes import cpu_nodes, end_schedule
from cloudrec.providers.gcp.nodes.cpu_nodes import CPU
from cloudrec.providers.gcp.nodes.node_pools import GPU, GcpCpuNodesDriver, GcpGpuNodesDriver
from cloudrec.providers.gcp.nodes.pool_model import CpuPoolProperties, GpuPoolProperties, Hardware
from cloudrec.providers.gcp.offers import FLEX, RESERVED, SSD_GIB
from cloudrec.providers.gcp.prices import LOCAL_SSD, SPOT_LOCAL_SSD
from cloudrec.spec.durations import seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.base.offers import Placement
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.api.driver import GcpDriver
    from cloudrec.providers.gcp.layout import GcpLayout
    from cloudrec.providers.gcp.offers import GcpMachineType

KINDS: Mapping[str, AbstractSet[str]] = {
    CPU: frozenset({CLUSTER, identity.ACCOUNT, identity.BINDING}),
    GPU: frozenset(
        {
            CLUSTER,
            CPU,
            placement.PLACEMENT,
            network.NETWORK,
            network.SUBNET,
            identity.ACCOUNT,
            identity.BINDING,
            end_schedule.SCHEDULE,
        }
    ),
}

# Seconds to wait for nodes of each capacity type if GKE does not report that there is no capacity.
_PATIENCE_S: Mapping[str, float] = {SPOT: 1200.0, ON_DEMAND: 1800.0, RESERVED: 1800.0, FLEX: 0.0}
_FLEX_RUN = "7d"
# Pods that request a GPU tolerate the taint; others stay off the GPU nodes.
TAINT = "nvidia.com/gpu=present:NO_SCHEDULE"


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the pools."""
    return [_cpu(layout), _gpu(layout)]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {CPU: GcpCpuNodesDriver(gcp), GPU: GcpGpuNodesDriver(gcp)}


def _cpu(layout: GcpLayout) -> Resource[CpuPoolProperties]:
    asked = cpu_nodes.properties(layout)
    return layout.resource(
        CPU,
        needs=(layout.key(CLUSTER), *identity.keys(layout)),
        properties=asked,
        hourly_usd=cpu_nodes.hourly_usd(layout),
        node_type=layout.settings.cpu_machine_type,
        pool=asked.pool,
        nodes=asked.nodes * len(asked.zones),
    )


def _gpu(layout: GcpLayout) -> Resource:
    """Describe the GPU nodes as a choice between all candidates, with the resources that each needs.

    Raises:
        SpecError: the cluster is managed, and its machines have RDMA cards in several zones.
    """
    if layout.cluster.managed and len(layout.rdma_zones) > 1:
        # A pod names the networks of its cards, and each zone has others.
        raise SpecError(
            f"cluster.managed with RDMA cards needs one zone, not {', '.join(layout.rdma_zones)}",
            remedy=f"name one, such as --zones {layout.rdma_zones[0]}",
        )
    candidates = tuple(_candidate(layout, way) for way in layout.places())
    return layout.resource(
        GPU,
        needs=tuple(dict.fromkeys(need for candidate in candidates for need in candidate.needs)),
        candidates=candidates,
        hourly_usd=candidates[0].hourly_usd if candidates else None,
    )


def _candidate(layout: GcpLayout, way: Placement) -> Resource[GpuPoolProperties]:
    cluster, settings, hardware = layout.cluster, layout.settings, layout.hardware[way.instance_type]
    version, pool = cluster.kubernetes_version, end_schedule.pool_of(way)
    run = settings.max_run_duration or _FLEX_RUN
    is_close = placement.is_close(layout, way)
    cards = tuple(
        (layout.key(network.NETWORK, card.network), layout.key(network.SUBNET, card.subnet))
        for card in network.cards(hardware, way.zone)
    )
    return layout.resource(
        GPU,
        f"{way.instance_type}-{way.zone}-{way.capacity}",
        needs=(
            layout.key(CLUSTER),
            layout.key(CPU),
            *identity.keys(layout),
            *end_schedule.keys(layout),
            *dict.fromkeys(net for net, _ in cards),
            *(subnet for _, subnet in cards),
            *((layout.key(placement.PLACEMENT, way.zone),) if is_close else ()),
        ),
        properties=GpuPoolProperties(
            path=f"{layout.cluster_path}/nodePools/{pool}",
            pool=pool,
            state=gke.RUNNING,
            instance_type=way.instance_type,
            hardware=Hardware(
                accelerator=hardware.accelerator,
                gpus=hardware.gpus,
                local_ssds=hardware.local_ssds,
                fast_socket=hardware.fast_socket,
            ),
            cards=cards,
            zone=way.zone,
            capacity=way.capacity,
            # Google makes no machines in a reservation before it begins.
            nodes=cluster.nodes if cluster.block is None or cluster.block.is_active else 0,
            disk_type=hardware.disk,
            disk_gib=settings.gpu_root_gib,
            driver=settings.gpu_driver,
            labels={**settings.labels, gke.LABEL: "gpu"},
            taints=[TAINT],
            reservation=layout.reservation,
            placement=ids.name(layout.regional_path("resourcePolicies", way.zone)) if is_close else "",
            max_run_s=int(seconds_of(run)) if way.capacity == FLEX else 0,
            patience_s=_PATIENCE_S[way.capacity],
            version=version or None,
        ),
        hourly_usd=total(
            layout.prices.nodes(way.instance_type, cluster.nodes, way.capacity),
            layout.prices.service(f"disk-{hardware.disk}-gib", settings.gpu_root_gib * cluster.nodes),
            *_added_disks(layout, hardware, way.capacity),
        ),
        node_type=way.instance_type,
        gpus=hardware.gpus,
        pool=pool,
        nodes=cluster.nodes,
        priced=layout.prices.priced(way.instance_type, way.capacity),
    )


def _added_disks(layout: GcpLayout, hardware: GcpMachineType, capacity: str) -> list[float | None]:
    """Return the price of the local SSDs that are added to the machines; empty for none.

    Where the price of those of spot machines is unknown, the price on demand is the limit.
    """
    gib = hardware.added_ssds * SSD_GIB * layout.cluster.nodes
    if not gib:
        return []
    spot = layout.prices.service(SPOT_LOCAL_SSD, gib) if capacity == SPOT else None
    return [layout.prices.service(LOCAL_SSD, gib) if spot is None else spot]
