"""What is asked of GKE for a pool: private nodes with an identity of their own, not to be interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.offers import SPOT
from cloudrec.providers.gcp.gke import version_key
from cloudrec.providers.gcp.offers import FLEX, RESERVED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Access scopes are of another age: what a node may do is said by the roles of its service account.
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_RESERVATION_KEY = "compute.googleapis.com/reservation-name"
# The first version of GKE whose spot nodes can be given a longer notice than 30 s.
_GRACE_SINCE = (1, 35, 0, 1171000)
_GRACE_S, _GRACE_SYSTEM_S = 120, 15  # in all, and the last of it for the system's own pods


def cpu(asked: Mapping[str, Any], *, labels: Mapping[str, str], service_account: str) -> dict[str, Any]:
    """Return the pool for what is no training, as the SDK takes it.

    Args:
        asked: the resource's properties.
        labels: what marks it and its machines as ours.
        service_account: email of the account that the nodes have.
    """
    return {
        "name": asked["pool"],
        "initial_node_count": asked["nodes"],
        "locations": list(asked["zones"]),
        "config": {
            **_node(asked, labels=labels, service_account=service_account),
            "shielded_instance_config": {"enable_secure_boot": True, "enable_integrity_monitoring": True},
        },
        "management": {"auto_upgrade": True, "auto_repair": True},
        "upgrade_settings": {"max_surge": 1, "max_unavailable": 0},
        "network_config": {"enable_private_nodes": True},
    }


def gpu(
    asked: Mapping[str, Any],
    *,
    labels: Mapping[str, str],
    service_account: str,
    networks: Sequence[tuple[str, str]],
    version: str,
) -> dict[str, Any]:
    """Return a pool that trains, as the SDK takes it: without nodes, which come when it is resized.

    A pool that is made with nodes and finds none locks the whole cluster for as long as GKE goes on looking.

    Args:
        asked: the resource's properties.
        labels: what marks it and its machines as ours.
        service_account: email of the account that the nodes have.
        networks: network and subnetwork of each card for the GPUs alone.
        version: of the control plane, which tells what GKE can do.
    """
    market, hardware = asked["market"], asked["hardware"]
    pool: dict[str, Any] = {
        "name": asked["pool"],
        "initial_node_count": 0,
        "locations": [asked["zone"]],
        "config": _gpu_node(asked, labels=labels, service_account=service_account, version=version),
        # GPUs cannot be had twice: a node is upgraded in its place.
        "management": {"auto_upgrade": True, "auto_repair": market != FLEX},
        "upgrade_settings": {"max_surge": 0, "max_unavailable": 1},
        "network_config": {"enable_private_nodes": True},
    }
    if hardware["gpu_nics"]:
        pool["network_config"]["additional_node_network_configs"] = [
            {"network": network, "subnetwork": subnetwork}
            for network, subnetwork in networks[: hardware["gpu_nics"]]
        ]
    if asked["placement"]:
        pool["placement_policy"] = {"type_": "COMPACT", "policy_name": asked["placement"]}
    if market == FLEX:
        pool["autoscaling"] = autoscaling(asked["nodes"])
    return pool


def autoscaling(nodes: int) -> dict[str, Any]:
    """Return what lets nodes come when pods ask for them, and Google has them."""
    return {
        "enabled": True,
        "total_min_node_count": 0,
        "total_max_node_count": nodes,
        "location_policy": "ANY",
    }


def taints(texts: Sequence[str]) -> list[dict[str, str]]:
    """Return taints, written KEY=VALUE:EFFECT, as the SDK takes them."""
    found = []
    for text in texts:
        key, _, rest = text.partition("=")
        value, _, effect = rest.rpartition(":")
        found.append({"key": key, "value": value, "effect": effect})
    return found


def _node(asked: Mapping[str, Any], *, labels: Mapping[str, str], service_account: str) -> dict[str, Any]:
    return {
        "machine_type": asked["instance_type"],
        "disk_type": asked["disk_type"],
        "disk_size_gb": asked["disk_gib"],
        "image_type": "COS_CONTAINERD",
        "service_account": service_account,
        "oauth_scopes": list(_SCOPES),
        "metadata": {"disable-legacy-endpoints": "true"},
        "workload_metadata_config": {"mode": "GKE_METADATA"},
        "gvnic": {"enabled": True},
        "gcfs_config": {"enabled": True},  # images start before all of them is there
        "labels": dict(asked["labels"]),
        "resource_labels": dict(labels),
    }


def _gpu_node(
    asked: Mapping[str, Any], *, labels: Mapping[str, str], service_account: str, version: str
) -> dict[str, Any]:
    market, hardware = asked["market"], asked["hardware"]
    node = _node(asked, labels=labels, service_account=service_account) | {
        "accelerators": [
            {
                "accelerator_type": hardware["accelerator"],
                "accelerator_count": hardware["gpus"],
                "gpu_driver_installation_config": {"gpu_driver_version": asked["driver"]},
            }
        ],
        "taints": taints(asked["taints"]),
        "shielded_instance_config": {"enable_integrity_monitoring": True},
        "reservation_affinity": _affinity(asked["reservation"], market),
    }
    if hardware["fast_socket"]:
        node["fast_socket"] = {"enabled": True}
    if hardware["local_ssds"]:
        node["ephemeral_storage_local_ssd_config"] = {"local_ssd_count": hardware["local_ssds"]}
    if market == SPOT:
        node["spot"] = True
        if version_key(version) >= _GRACE_SINCE:
            node["kubelet_config"] = {
                "shutdown_grace_period_seconds": _GRACE_S,
                "shutdown_grace_period_critical_pods_seconds": _GRACE_SYSTEM_S,
            }
    if market == FLEX:
        node["flex_start"] = True
    if asked["max_run_s"]:
        node["max_run_duration"] = {"seconds": asked["max_run_s"]}
    return node


def _affinity(reservation: str, market: str) -> dict[str, Any]:
    """Say which reservations the nodes may use up: the one that is named, or none of others'."""
    if market != RESERVED:
        return {"consume_reservation_type": "NO_RESERVATION"}
    return {
        "consume_reservation_type": "SPECIFIC_RESERVATION",
        "key": _RESERVATION_KEY,
        "values": [reservation],
    }
