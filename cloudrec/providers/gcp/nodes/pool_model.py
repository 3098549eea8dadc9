"""The requested properties of GKE's node pools, and the messages that create the pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.graph import Properties
from cloudrec.providers.base.offers import SPOT
from cloudrec.providers.gcp.api import sdk
from cloudrec.providers.gcp.api.gke import version_key
from cloudrec.providers.gcp.offers import FLEX, RESERVED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Access scopes are a legacy limit. With all of them, only the roles of the service account decide.
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_RESERVATION_KEY = "compute.googleapis.com/reservation-name"
# The first GKE version in which spot nodes can have more than 30 s between the notice and the end.
_GRACE_SINCE = (1, 35, 0, 1171000)
_GRACE_S, _GRACE_SYSTEM_S = 120, 15  # in total, and the last part of it for system pods


@dataclass(frozen=True, kw_only=True)
class PoolProperties(Properties):
    """The requested properties of a pool of nodes, of either kind.

    Attributes:
        path: "projects/P/locations/L/clusters/C/nodePools/POOL".
        pool: its name.
        state: GKE's status of it, RUNNING.
        instance_type: the machine type of its nodes.
        nodes: how many nodes it has in each of its zones.
        disk_type: of the nodes' root disks.
        disk_gib: GiB of each of them.
        labels: of the nodes in Kubernetes.
        taints: of the nodes, each as KEY=VALUE:EFFECT with GKE's name of the effect.
        version: of Kubernetes, or its first parts; None for that of the control plane.
    """

    path: str
    pool: str
    state: str
    instance_type: str
    nodes: int
    disk_type: str
    disk_gib: int
    labels: Mapping[str, str]
    taints: list[str]
    version: str | None = None


@dataclass(frozen=True, kw_only=True)
class CpuPoolProperties(PoolProperties):
    """The requested properties of the pool without GPUs.

    Attributes:
        zones: where its nodes are.
    """

    zones: list[str]


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The hardware of a pool's machines; the fields are those of `GcpMachineType`."""

    accelerator: str
    gpus: int
    local_ssds: int
    fast_socket: bool


@dataclass(frozen=True, kw_only=True)
class GpuPoolProperties(PoolProperties):
    """The requested properties of a pool of GPU nodes.

    Attributes:
        hardware: of each node.
        cards: the keys of the network and of the subnet of each network card besides the first.
        zone: where its nodes are.
        capacity: how they are paid for: SPOT, ON_DEMAND, RESERVED or FLEX.
        driver: the version of the GPU driver that GKE installs: LATEST or DEFAULT.
        reservation: the reservation that they use; empty for none.
        placement: the name of the placement policy; empty for none.
        max_run_s: seconds after which a node ends; 0 for no limit.
        patience_s: seconds until a pool without nodes is given up; 0 where the nodes may come later.
    """

    hardware: Hardware
    cards: tuple[tuple[str, str], ...]
    zone: str
    capacity: str
    driver: str
    reservation: str
    placement: str
    max_run_s: int
    patience_s: float


def cpu(
    asked: CpuPoolProperties, *, labels: Mapping[str, str], service_account: str
) -> sdk.container.NodePool:
    """Return the SDK's message for a pool of CPU nodes.

    Args:
        asked: the requested properties.
        labels: the labels of the pool and its machines, which hold its tags.
        service_account: e-mail address of the nodes' service account.
    """
    of = sdk.container
    config = _node(asked, labels=labels, service_account=service_account)
    config.shielded_instance_config = of.ShieldedInstanceConfig(
        enable_secure_boot=True, enable_integrity_monitoring=True
    )
    return of.NodePool(
        name=asked.pool,
        initial_node_count=asked.nodes,
        locations=asked.zones,
        config=config,
        management=of.NodeManagement(auto_upgrade=True, auto_repair=True),
        upgrade_settings=of.NodePool.UpgradeSettings(max_surge=1, max_unavailable=0),
        network_config=of.NodeNetworkConfig(enable_private_nodes=True),
    )


def gpu(
    asked: GpuPoolProperties,
    *,
    labels: Mapping[str, str],
    service_account: str,
    networks: Sequence[tuple[str, str]],
    version: str,
) -> sdk.container.NodePool:
    """Return the SDK's message for a pool of GPU nodes. It has no nodes until it is resized.

    If GKE creates a pool with nodes and finds no capacity, it locks the whole cluster while it keeps looking.

    Args:
        asked: the requested properties.
        labels: the labels of the pool and its machines, which hold its tags.
        service_account: e-mail address of the nodes' service account.
        networks: the network and the subnetwork of each network card besides the first.
        version: the Kubernetes version of the control plane, on which some features depend.
    """
    of = sdk.container
    capacity = asked.capacity
    network_config = of.NodeNetworkConfig(enable_private_nodes=True)
    if networks:
        network_config.additional_node_network_configs = [
            of.AdditionalNodeNetworkConfig(network=network, subnetwork=subnetwork)
            for network, subnetwork in networks
        ]
    pool = of.NodePool(
        name=asked.pool,
        initial_node_count=0,
        locations=[asked.zone],
        config=_gpu_node(asked, labels=labels, service_account=service_account, version=version),
        # There is no spare GPU capacity for a surge: each node is upgraded in place.
        management=of.NodeManagement(auto_upgrade=True, auto_repair=capacity != FLEX),
        upgrade_settings=of.NodePool.UpgradeSettings(max_surge=0, max_unavailable=1),
        network_config=network_config,
    )
    if asked.placement:
        pool.placement_policy = of.NodePool.PlacementPolicy(
            type_=of.NodePool.PlacementPolicy.Type.COMPACT, policy_name=asked.placement
        )
    if capacity == FLEX:
        pool.autoscaling = autoscaling(asked.nodes)
    return pool


def autoscaling(nodes: int) -> sdk.container.NodePoolAutoscaling:
    """Return the autoscaling of flex-start: GKE adds nodes when pods need them and Google has capacity."""
    of = sdk.container
    return of.NodePoolAutoscaling(
        enabled=True,
        total_min_node_count=0,
        total_max_node_count=nodes,
        location_policy=of.NodePoolAutoscaling.LocationPolicy.ANY,
    )


def taints(texts: Sequence[str]) -> list[sdk.container.NodeTaint]:
    """Parse taints in the format KEY=VALUE:EFFECT into the SDK's messages."""
    found = []
    for text in texts:
        key, _, rest = text.partition("=")
        value, _, effect = rest.rpartition(":")
        found.append(sdk.container.NodeTaint(key=key, value=value, effect=effect))
    return found


def _node(
    asked: PoolProperties, *, labels: Mapping[str, str], service_account: str
) -> sdk.container.NodeConfig:
    of = sdk.container
    return of.NodeConfig(
        machine_type=asked.instance_type,
        disk_type=asked.disk_type,
        disk_size_gb=asked.disk_gib,
        image_type="COS_CONTAINERD",
        service_account=service_account,
        oauth_scopes=_SCOPES,
        metadata={"disable-legacy-endpoints": "true"},
        workload_metadata_config=of.WorkloadMetadataConfig(mode=of.WorkloadMetadataConfig.Mode.GKE_METADATA),
        gvnic=of.VirtualNIC(enabled=True),
        gcfs_config=of.GcfsConfig(enabled=True),  # image streaming: containers start earlier
        labels=asked.labels,
        resource_labels=labels,
    )


def _gpu_node(
    asked: GpuPoolProperties,
    *,
    labels: Mapping[str, str],
    service_account: str,
    version: str,
) -> sdk.container.NodeConfig:
    of = sdk.container
    capacity, hardware = asked.capacity, asked.hardware
    node = _node(asked, labels=labels, service_account=service_account)
    driver = of.GPUDriverInstallationConfig(gpu_driver_version=asked.driver)
    node.accelerators = [
        of.AcceleratorConfig(
            accelerator_type=hardware.accelerator,
            accelerator_count=hardware.gpus,
            gpu_driver_installation_config=driver,
        )
    ]
    node.taints = taints(asked.taints)
    node.shielded_instance_config = of.ShieldedInstanceConfig(enable_integrity_monitoring=True)
    node.reservation_affinity = _affinity(asked.reservation, capacity)
    if hardware.fast_socket:
        node.fast_socket = of.FastSocket(enabled=True)
    if hardware.local_ssds:
        node.ephemeral_storage_local_ssd_config = of.EphemeralStorageLocalSsdConfig(
            local_ssd_count=hardware.local_ssds
        )
    if capacity == SPOT:
        node.spot = True
        if version_key(version) >= _GRACE_SINCE:
            node.kubelet_config = of.NodeKubeletConfig(
                shutdown_grace_period_seconds=_GRACE_S,
                shutdown_grace_period_critical_pods_seconds=_GRACE_SYSTEM_S,
            )
    if capacity == FLEX:
        node.flex_start = True
    if asked.max_run_s:
        node.max_run_duration = {"seconds": asked.max_run_s}
    return node


def _affinity(reservation: str, capacity: str) -> sdk.container.ReservationAffinity:
    """Return which reservation the nodes use: the named one, or none at all."""
    of, kinds = sdk.container, sdk.container.ReservationAffinity.Type
    # By default, GKE would take nodes from any matching reservation of the project.
    if capacity != RESERVED:
        return of.ReservationAffinity(consume_reservation_type=kinds.NO_RESERVATION)
    return of.ReservationAffinity(
        consume_reservation_type=kinds.SPECIFIC_RESERVATION, key=_RESERVATION_KEY, values=[reservation]
    )
