"""The nodes: a small pool for what is no training, and one of GPU nodes, wherever it can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.cloud.layout import shortened
from cloudrec.cloud.offers import ON_DEMAND, SPOT
from cloudrec.providers.gcp import cpu_nodes, gke, identity, network, offers, prices
from cloudrec.providers.gcp.cpu_nodes import CPU
from cloudrec.providers.gcp.gke import CLUSTER
from cloudrec.providers.gcp.node_pools import GPU, CpuNodesDriver, GpuNodesDriver
from cloudrec.providers.gcp.offers import FLEX, RESERVED
from cloudrec.providers.gcp.placement import PLACEMENT, PlacementDriver
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
    PLACEMENT: frozenset(),
    CPU: frozenset({CLUSTER, identity.ACCOUNT, identity.BINDING}),
    GPU: frozenset(
        {
            CLUSTER,
            CPU,
            PLACEMENT,
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
    """Describe placement policies and pools."""
    return [_cpu(layout), *_gpu(layout)]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {PLACEMENT: PlacementDriver(gcp), CPU: CpuNodesDriver(gcp), GPU: GpuNodesDriver(gcp)}


def places(layout: Layout) -> list[Place]:
    """Return the ways of having the GPU nodes, the best first."""
    return offers.ways(
        layout.instance_types,
        layout.gpu_zones,
        layout.offered,
        hardware=layout.hardware,
        capacity=layout.cluster.capacity,
        settings=layout.settings,
    )


def _cpu(layout: Layout) -> Resource:
    return layout.resource(
        CPU,
        needs=(layout.key(CLUSTER), *_account(layout)),
        properties=cpu_nodes.properties(layout),
        hourly_usd=cpu_nodes.hourly_usd(layout),
    )


def _gpu(layout: Layout) -> list[Resource]:
    """Describe the choice between all ways of having the GPU nodes, and what each way needs."""
    ways = places(layout)
    # What was tried in one zone must not stand in the way of the next.
    policies = {
        zone: layout.resource(
            PLACEMENT, zone, properties={"path": layout.regional_path("resourcePolicies", zone)}
        )
        for zone in dict.fromkeys(way.zone for way in ways if _is_close(layout, way))
    }
    candidates = tuple(
        _candidate(layout, way, policies[way.zone] if _is_close(layout, way) else None) for way in ways
    )
    choice = layout.resource(
        GPU,
        needs=tuple(dict.fromkeys(need for candidate in candidates for need in candidate.needs)),
        candidates=candidates,
        hourly_usd=candidates[0].hourly_usd if candidates else 0.0,
    )
    return [*policies.values(), choice]


def _is_close(layout: Layout, way: Place) -> bool:
    """Tell whether nodes are to stand close together; those from Google's queue stand where they do."""
    is_wanted = layout.settings.compact and layout.cluster.nodes > 1
    return is_wanted and layout.hardware[way.instance_type].compact and way.market in {SPOT, ON_DEMAND}


def _candidate(layout: Layout, way: Place, policy: Resource | None) -> Resource:
    cluster, settings, hardware = layout.cluster, layout.settings, layout.hardware[way.instance_type]
    version, zone = cluster.kubernetes_version, way.zone.rpartition("-")[2]
    pool = shortened(f"gpu-{way.instance_type}-{zone}-{_SHORT[way.market]}", _LONGEST)
    run = settings.max_run_duration or _FLEX_RUN
    return layout.resource(
        GPU,
        f"{way.instance_type}-{way.zone}-{way.market}",
        needs=(
            layout.key(CLUSTER),
            layout.key(CPU),
            *_account(layout),
            *_cards(layout, hardware.gpu_nics),
            *((policy.key,) if policy is not None else ()),
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
            "placement": policy.properties["path"].rpartition("/")[2] if policy is not None else "",
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
