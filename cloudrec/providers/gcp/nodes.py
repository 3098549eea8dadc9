"""The nodes: a small pool for what is no training, and one of GPU nodes, wherever it can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.cloud.layout import shortened
from cloudrec.cloud.offers import ON_DEMAND, SPOT
from cloudrec.providers.gcp import cpu_nodes, gke, identity, ids, network, offers, placement, prices
from cloudrec.providers.gcp.cpu_nodes import CPU
from cloudrec.providers.gcp.gke import CLUSTER
from cloudrec.providers.gcp.node_pools import GPU, CpuNodesDriver, GpuNodesDriver
from cloudrec.providers.gcp.offers import FLEX, RESERVED
from cloudrec.spec.models import seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.cloud.offers import Place
    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.driver import GcpDriver
    from cloudrec.providers.gcp.layout import Layout

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
        }
    ),
}

_LONGEST = 40  # characters of a pool's name
_SHORT: Mapping[str, str] = {SPOT: "spot", ON_DEMAND: "od", FLEX: "flex", RESERVED: "res"}
# Seconds that each way of having nodes is waited for, where GKE does not say that there are none.
_PATIENCE_S: Mapping[str, float] = {SPOT: 1200.0, ON_DEMAND: 1800.0, RESERVED: 1800.0, FLEX: 0.0}
_DISK = "pd-balanced"
_FLEX_RUN = "7d"
# Pods that ask for a GPU tolerate it; nothing else comes to stand in their way.
TAINT = "nvidia.com/gpu=present:NO_SCHEDULE"


def resources(layout: Layout) -> list[Resource]:
    """Describe the pools."""
    return [_cpu(layout), _gpu(layout)]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {CPU: CpuNodesDriver(gcp), GPU: GpuNodesDriver(gcp)}


def places(layout: Layout) -> list[Place]:
    """Return the ways of having the GPU nodes, the best first."""
    return offers.places(layout)


def _cpu(layout: Layout) -> Resource:
    return layout.resource(
        CPU,
        needs=(layout.key(CLUSTER), *_account(layout)),
        properties=cpu_nodes.properties(layout),
        hourly_usd=cpu_nodes.hourly_usd(layout),
    )


def _gpu(layout: Layout) -> Resource:
    """Describe the choice between all ways of having the GPU nodes, and what each way needs."""
    candidates = tuple(_candidate(layout, way) for way in places(layout))
    return layout.resource(
        GPU,
        needs=tuple(dict.fromkeys(need for candidate in candidates for need in candidate.needs)),
        candidates=candidates,
        hourly_usd=candidates[0].hourly_usd if candidates else 0.0,
    )


def _candidate(layout: Layout, way: Place) -> Resource:
    cluster, settings, hardware = layout.cluster, layout.settings, layout.hardware[way.instance_type]
    version, zone = cluster.kubernetes_version, way.zone.rpartition("-")[2]
    pool = shortened(f"gpu-{way.instance_type}-{zone}-{_SHORT[way.market]}", _LONGEST)
    run = settings.max_run_duration or _FLEX_RUN
    is_close = placement.is_close(layout, way)
    return layout.resource(
        GPU,
        f"{way.instance_type}-{way.zone}-{way.market}",
        needs=(
            layout.key(CLUSTER),
            layout.key(CPU),
            *_account(layout),
            *_cards(layout, hardware.gpu_nics),
            *((layout.key(placement.PLACEMENT, way.zone),) if is_close else ()),
        ),
        properties={
            "path": f"{layout.cluster_path}/nodePools/{pool}",
            "pool": pool,
            "state": gke.RUNNING,
            "instance_type": way.instance_type,
            "hardware": {
                "accelerator": hardware.accelerator,
                "gpus": hardware.gpus,
                "gpu_nics": hardware.gpu_nics,
                "local_ssds": hardware.local_ssds,
                "fast_socket": hardware.fast_socket,
            },
            "zone": way.zone,
            "market": way.market,
            "nodes": cluster.nodes,
            "disk_type": _DISK,
            "disk_gib": settings.gpu_root_gib,
            "driver": settings.gpu_driver,
            "labels": {**settings.labels, gke.LABEL: "gpu"},
            "taints": [TAINT],
            "reservation": settings.reservation or "",
            "placement": ids.name(layout.regional_path("resourcePolicies", way.zone)) if is_close else "",
            "max_run_s": int(seconds_of(run)) if way.market == FLEX else 0,
            "patience_s": _PATIENCE_S[way.market],
            **({"version": version} if version else {}),
        },
        hourly_usd=prices.nodes(layout.prices, way.instance_type, way.market, cluster.nodes)
        + layout.prices.service(f"disk-{_DISK}-gib", settings.gpu_root_gib * cluster.nodes),
    )


def _account(layout: Layout) -> tuple[str, str]:
    """Who nodes are to Google, and what they may do."""
    return layout.key(identity.ACCOUNT, identity.NODES), layout.key(identity.BINDING, identity.NODES)


def _cards(layout: Layout, count: int) -> Sequence[str]:
    """The networks of the GPUs' own cards."""
    suffixes = network.gpu_suffixes(layout)[:count]
    return (*layout.keys(network.NETWORK, suffixes), *layout.keys(network.SUBNET, suffixes))
