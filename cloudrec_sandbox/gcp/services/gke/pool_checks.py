"""What GKE refuses of a node pool at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from google.cloud.container_v1.types import (
    Cluster,
    NodeConfig,
    NodePool,
    NodeTaint,
    ReservationAffinity,
    WorkloadMetadataConfig,
)

from cloudrec_sandbox.gcp.api import access
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.resources import checks, store
from cloudrec_sandbox.gcp.resources.places import region_of
from cloudrec_sandbox.gcp.services.compute.capacity import machines
from cloudrec_sandbox.gcp.services.compute.network.profiles import roce_zone
from cloudrec_sandbox.gcp.services.gke import network, nodes, versions
from cloudrec_sandbox.gcp.services.iam import accounts

if TYPE_CHECKING:
    from google.cloud.container_v1.types import NodeManagement

    from cloudrec_sandbox.gcp.api.call import Call

LONGEST_NAME = 40
_MOST_NODES = 1000  # of a pool in one zone
_LEAST_DISK_GB, _MOST_DISK_GB = 10, 65536
_MOST_NETWORKS = 8  # beside the first one: A3 Mega has eight GPU networks
# Machine types with RDMA have two gVNICs, the first one included, and eight MRDMA cards ("Networking and
# GPU machines", https://cloud.google.com/compute/docs/gpus/gpu-network-bandwidth). No page of Google's is
# known to say that they must be used: a pool asks for networks of them ("Configure automated networking for
# accelerator VMs", https://cloud.google.com/kubernetes-engine/docs/how-to/config-auto-net-for-accelerators),
# and dstack had A4 machines on an ordinary network (https://github.com/dstackai/dstack/pull/3100). So a pool
# without such networks is not refused; its machines have no RDMA.
_WITH_RDMA = ("a3-ultragpu-", "a4-", "a4x-")
_MOST_WITH_RDMA = {"GVNIC": 1, "MRDMA": 8}
# 0, 30 or 120 from 1.35.0-gke.1171000 on (google-cloud-container's NodeKubeletConfig; "Spot VMs").
_GRACE_SECONDS = (0, 30, 120)
_GRACE_SINCE = "1.35.0-gke.1171000"
_IMAGES = ("COS_CONTAINERD", "UBUNTU_CONTAINERD")
_DISKS = ("pd-standard", "pd-balanced", "pd-ssd", "hyperdisk-balanced")
# Machine types without Persistent Disk ("Machine type support" of "About Hyperdisk", Compute Engine's docs).
_ONLY_HYPERDISK = ("a3-ultragpu-", "a4-", "a4x-", "c4-", "n4-")
_COMPACT = ("a2", "a3", "a4", "c2", "c2d", "c3", "c3d", "c4", "g2", "h3", "n2", "n2d")
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def invalid(message: str) -> GcpError:
    """Return the refusal of an invalid request."""
    return GcpError("INVALID_ARGUMENT", message)


def check(call: Call, cluster: Cluster, path: str, pool: NodePool) -> None:
    """Raise GcpError for a pool that GKE refuses; `path` is the cluster's."""
    _, project, _, location, *_ = path.split("/")
    if not checks.is_name(pool.name, LONGEST_NAME):
        raise invalid(
            f'Invalid value for field "node_pool.name": "{pool.name}". Must be at most {LONGEST_NAME}'
            " characters of lowercase letters, digits and dashes, starting with a letter and not ending with"
            " a dash."
        )
    _check_enums(NodePool.pb(pool), "node_pool")
    _check_size(pool)
    if "management" in pool:
        queued = pool.config.flex_start or pool.queued_provisioning.enabled
        check_management(cluster, pool.management, is_queued=queued)
    places = list(pool.locations) or list(cluster.locations)
    for zone in places:
        if region_of(zone) != region_of(location) or zone == region_of(location):
            raise invalid(f'Location "{zone}" is not a zone of region "{region_of(location)}".')
    for zone in places:
        _check_machine(pool, zone)
    _check_disk(pool.config)
    _check_hardware(pool)
    _check_kubernetes(cluster, pool)
    _check_placement(call, pool, project, region_of(location))
    _check_networks(call, cluster, pool, project, region_of(location))
    check_account(call, project, pool.config.service_account)


def check_management(cluster: Cluster, wanted: NodeManagement, *, is_queued: bool = False) -> None:
    """Refuse a pool without automatic upgrades or repairs in a cluster with a release channel.

    GKE's error of that text is quoted by its users; only maintenance exclusions hold upgrades back there
    ("Release channels" and "Maintenance windows and exclusions", GKE's documentation).

    Args:
        cluster: the pool's cluster.
        wanted: the pool's management.
        is_queued: whether the pool's nodes come from a queue: those are not repaired.
    """
    channel = cluster.release_channel.channel
    if channel and not wanted.auto_upgrade:
        raise invalid(f"Auto_upgrade must be true when release_channel {channel.name} is set.")
    if channel and not (wanted.auto_repair or is_queued):
        raise invalid(f"Auto_repair cannot be false when release_channel {channel.name} is set.")


def _check_enums(message: Any, where: str) -> None:  # noqa: ANN401 - any message of protobuf's
    """Refuse numbers that an enum does not have: proto3 carries any, and Google's APIs refuse them."""
    for field, value in message.ListFields():
        path = f"{where}.{field.name}"
        if field.enum_type is not None:
            for number in [value] if isinstance(value, int) else value:
                if number not in field.enum_type.values_by_number:
                    raise invalid(f"Invalid value at '{path}' ({field.enum_type.full_name}), {number}")
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in [value] if hasattr(value, "DESCRIPTOR") else value:
                _check_enums(each, path)


def _check_size(pool: NodePool) -> None:
    if not 0 <= pool.initial_node_count <= _MOST_NODES:
        raise invalid(f"Node_pool.initial_node_count {pool.initial_node_count} is not in [0, {_MOST_NODES}].")
    scaling = pool.autoscaling
    if scaling.enabled:
        most = scaling.max_node_count or scaling.total_max_node_count
        least = scaling.min_node_count or scaling.total_min_node_count
        if most < 1 or least > most:
            raise invalid(f"Autoscaling needs min_node_count <= max_node_count >= 1, not {least} and {most}.")
        if scaling.max_node_count and scaling.total_max_node_count:
            raise invalid("Autoscaling takes limits per zone or in total, not both.")
    # These pools queue for machines: they start empty, and the autoscaler makes their nodes.
    if pool.config.flex_start or pool.queued_provisioning.enabled:
        if pool.initial_node_count:
            raise invalid("Node pools of flex-start or queued provisioning must be created with zero nodes.")
        if not scaling.enabled:
            raise invalid("Node pools of flex-start or queued provisioning need autoscaling.")
        if pool.management.auto_repair:
            raise invalid("Node auto-repair must be disabled for flex-start and queued provisioning.")


def _check_machine(pool: NodePool, zone: str) -> None:
    config = pool.config
    wanted = config.machine_type or "e2-medium"
    if machines.find(wanted, zone) is None:
        raise invalid(f'Machine type with name "{wanted}" does not exist in zone "{zone}".')
    for each in config.accelerators:
        if trouble := machines.accelerator_fits(wanted, each.accelerator_type, each.accelerator_count):
            raise invalid(trouble)
    machine = machines.find(wanted, zone)
    # The GPUs are built in, but GKE requires that the pool names them.
    if machine and machine.accelerator and not config.accelerators:
        raise invalid(
            f"Machine type {wanted} has {machine.accelerators} {machine.accelerator}: the node pool must name"
            " them as its accelerators."
        )
    if machine and machine.local_ssds and nodes.local_ssds(pool) not in (0, machine.local_ssds):
        raise invalid(f"Machine type {wanted} has {machine.local_ssds} local SSDs, no other number.")
    added = 0 if machine is None or machine.local_ssds else nodes.local_ssds(pool)
    if machine and machine.accelerator and added and added not in machine.ssd_counts:
        allowed = ", ".join(map(str, (0, *machine.ssd_counts)))
        raise invalid(
            f"Number of local SSDs for machine type {wanted} should be one of [{allowed}], while [{added}] is"
            " requested."
        )


def _check_disk(config: NodeConfig) -> None:
    if config.disk_size_gb and config.disk_size_gb < _LEAST_DISK_GB:
        raise invalid(f"Disk size {config.disk_size_gb} GB is below {_LEAST_DISK_GB} GB.")
    if config.disk_size_gb > _MOST_DISK_GB:
        raise invalid(f"Disk size {config.disk_size_gb} GB is above {_MOST_DISK_GB} GB.")
    disk, machine = config.disk_type or "pd-balanced", config.machine_type
    if disk not in _DISKS:
        raise invalid(f'Disk type "{disk}" is not supported.')
    if machine.startswith(_ONLY_HYPERDISK) and disk.startswith("pd-"):
        raise invalid(f"{disk} disk type cannot be used by {machine} machine type.")


def _check_hardware(pool: NodePool) -> None:
    config = pool.config
    if config.spot and config.preemptible:
        raise invalid("Spot and preemptible cannot both be set.")
    if config.spot and config.flex_start:
        raise invalid("Spot and flex_start cannot both be set.")
    if config.image_type and config.image_type.upper() not in _IMAGES:
        raise invalid(f'Image type "{config.image_type}" is not supported.')
    if config.fast_socket.enabled and not config.gvnic.enabled:
        raise invalid("Fast Socket requires gVNIC to be enabled.")
    affinity = config.reservation_affinity
    specific = affinity.consume_reservation_type == ReservationAffinity.Type.SPECIFIC_RESERVATION
    if specific and (affinity.key != "compute.googleapis.com/reservation-name" or not affinity.values):
        raise invalid(
            "A specific reservation needs the key compute.googleapis.com/reservation-name and its name."
        )
    grace = config.kubelet_config.shutdown_grace_period_seconds
    if grace not in _GRACE_SECONDS:
        raise invalid(f"shutdown_grace_period_seconds {grace} is none of 0, 30, 120.")
    if grace and not (config.spot or config.preemptible):
        raise invalid("shutdown_grace_period_seconds is only valid for Spot VMs.")


def _check_kubernetes(cluster: Cluster, pool: NodePool) -> None:
    config = pool.config
    for key, value in config.labels.items():
        if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            raise invalid(f'Node label "{key}={value}" is not valid.')
        if key.split("/")[0].endswith(("kubernetes.io", "k8s.io", "cloud.google.com")) and "/" in key:
            raise invalid(f'Node label key "{key}" has a reserved prefix.')
    for taint in config.taints:
        if not taint.key or taint.effect == NodeTaint.Effect.EFFECT_UNSPECIFIED:
            raise invalid("A taint needs a key and an effect.")
    checks.labels(config.resource_labels, "node_pool.config.resource_labels")
    # Pods get the node's own service account unless the cluster has an identity pool.
    metadata = config.workload_metadata_config.mode == WorkloadMetadataConfig.Mode.GKE_METADATA
    if metadata and not cluster.workload_identity_config.workload_pool:
        raise GcpError(
            "FAILED_PRECONDITION",
            "Workload metadata mode GKE_METADATA requires Workload Identity to be enabled on the cluster.",
        )
    # Kubernetes' version skew: a kubelet may not be newer than its API server.
    control, wanted = cluster.current_master_version, pool.version
    if wanted and control:
        known = versions.resolve(wanted, cluster.release_channel.channel)
        if versions.parts(known) > versions.parts(control):
            raise invalid(f"Node version {known} must not be newer than the master version {control}.")
    grace = config.kubelet_config.shutdown_grace_period_seconds
    since = versions.parts(_GRACE_SINCE)
    if grace and versions.parts(wanted or control or versions.DEFAULT) < since:
        raise invalid(f"shutdown_grace_period_seconds requires GKE version {_GRACE_SINCE} or later.")


def _check_placement(call: Call, pool: NodePool, project: str, region: str) -> None:
    policy = pool.placement_policy
    if policy.type_ == NodePool.PlacementPolicy.Type.COMPACT:
        family = pool.config.machine_type.partition("-")[0]
        if family not in _COMPACT:
            raise invalid(
                f'Compact placement is not supported for machine type "{pool.config.machine_type}".'
            )
        if len(pool.locations) > 1:
            raise invalid("Compact placement needs all nodes of the pool in one zone.")
    if policy.policy_name:
        path = f"projects/{project}/regions/{region}/resourcePolicies/{policy.policy_name}"
        if store.find(call.world, "compute", path) is None:
            raise invalid(f"Resource policy '{path}' was not found.")


def _check_networks(call: Call, cluster: Cluster, pool: NodePool, project: str, region: str) -> None:
    if pool.network_config.accelerator_network_profile:
        raise GcpError("UNIMPLEMENTED", "this stand-in makes no networks for accelerators")
    extras = pool.network_config.additional_node_network_configs
    # Additional networks need the cluster's multi-networking, and so Dataplane V2 (google-cloud-container).
    if extras and not cluster.network_config.enable_multi_networking:
        raise invalid("Additional node networks require multi-networking to be enabled on the cluster.")
    has_rdma = pool.config.machine_type.startswith(_WITH_RDMA)
    most = _MOST_WITH_RDMA if has_rdma else {"GVNIC": _MOST_NETWORKS, "MRDMA": 0}
    zones = set(pool.locations or cluster.locations)
    count = dict.fromkeys(most, 0)
    seen = {cluster.network_config.network}
    for extra in extras:
        net = network.network(call.world, extra.network, project)
        subnet = network.subnetwork(call.world, extra.subnetwork, project, region)
        if not network.belongs(subnet, net):
            raise invalid(f'Subnetwork "{subnet.name}" is not one of network "{net.name}".')
        zone = roce_zone(net.document)
        if zone and {zone} != zones:
            raise invalid(f'Network "{net.name}" is in zone "{zone}", and the node pool is not.')
        # The cards of a machine share one RDMA network: each is in another subnetwork of it.
        used = subnet if zone else net
        if used.path in seen:
            raise invalid(f'Network "{used.name}" is used by more than one interface of the nodes.')
        seen.add(used.path)
        count["MRDMA" if zone else "GVNIC"] += 1
    for kind, limit in most.items():
        if count[kind] > limit:
            raise invalid(
                f"{count[kind]} additional node networks of {kind} are more than {limit}, those of machine"
                f' type "{pool.config.machine_type}".'
            )


def check_account(call: Call, project: str, email: str) -> None:
    """Raise GcpError for a service account that does not exist yet, or that the caller may not act as."""
    if email in ("", "default"):
        return
    if not accounts.usable(call.world, email):
        raise invalid(f'Service account "{email}" does not exist.')
    path = f"projects/{project}/serviceAccounts/{email}"
    permission = "iam.serviceAccounts.actAs"
    # A pool's machines act as the account: without this check a user could get the account's rights by them.
    if not access.permitted(call, permission, project, path):
        raise GcpError(
            "PERMISSION_DENIED",
            f'The user does not have access to service account "{email}". Ask a project owner to grant you'
            " the iam.serviceAccountUser role on the service account.",
        )
