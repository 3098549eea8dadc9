"""What is asked of GKE for a new cluster: private, without passwords, and open to those who may alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.providers.gcp.network import PODS, SERVICES

if TYPE_CHECKING:
    from collections.abc import Mapping


def cluster(
    asked: Mapping[str, Any],
    *,
    name: str,
    labels: Mapping[str, str],
    network: str,
    subnetwork: str,
    pool: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the cluster as the SDK takes it.

    Args:
        asked: the resource's properties.
        name: of the cluster.
        labels: what marks it as ours.
        network: the network that the nodes are in.
        subnetwork: the subnetwork that they are in.
        pool: the first pool, for what is no training: GKE taints GPU nodes only where others are.
    """
    body: dict[str, Any] = {
        "name": name,
        "resource_labels": dict(labels),
        "network": network,
        "subnetwork": subnetwork,
        "ip_allocation_policy": {
            "use_ip_aliases": True,
            "cluster_secondary_range_name": PODS,
            "services_secondary_range_name": SERVICES,
        },
        "network_config": {
            "datapath_provider": "ADVANCED_DATAPATH",  # which enforces network policies, too
            "default_enable_private_nodes": True,
            "enable_multi_networking": bool(asked.get("multi_networking")),
        },
        "control_plane_endpoints_config": endpoints(asked["authorized_networks"]),
        "workload_identity_config": {"workload_pool": asked["workload_pool"]},
        "addons_config": addons(lustre=bool(asked.get("lustre"))),
        "shielded_nodes": {"enabled": True},
        "release_channel": {"channel": asked["release_channel"]},
        "master_auth": {"client_certificate_config": {"issue_client_certificate": False}},
        "legacy_abac": {"enabled": False},
        "rbac_binding_config": {
            "enable_insecure_binding_system_authenticated": False,
            "enable_insecure_binding_system_unauthenticated": False,
        },
        "security_posture_config": {"mode": "BASIC"},
        "logging_config": {"component_config": {"enable_components": ["SYSTEM_COMPONENTS", "WORKLOADS"]}},
        "cost_management_config": {"enabled": True},
        "node_pools": [dict(pool)],
    }
    if asked.get("version"):
        body["initial_cluster_version"] = asked["version"]
    if asked.get("kms_key"):
        body["database_encryption"] = encryption(asked["kms_key"])
    return body


def endpoints(authorized_networks: object) -> dict[str, Any]:
    """Return how the control plane is reached.

    By its name, where Google's IAM guards the door; or by its address, from the networks that are named.
    """
    blocks = [{"cidr_block": block} for block in _blocks(authorized_networks)]
    ip_endpoints: dict[str, Any] = {"enabled": bool(blocks)}
    if blocks:
        ip_endpoints |= {
            "enable_public_endpoint": True,
            "authorized_networks_config": {
                "enabled": True,
                "cidr_blocks": blocks,
                "gcp_public_cidrs_access_enabled": False,
            },
        }
    return {
        "dns_endpoint_config": {"allow_external_traffic": not blocks},
        "ip_endpoints_config": ip_endpoints,
    }


def encryption(key: str) -> dict[str, str]:
    """Return how Kubernetes' secrets are encrypted: with a key of one's own, or Google's alone."""
    return {"state": "ENCRYPTED", "key_name": key} if key else {"state": "DECRYPTED"}


def addons(*, lustre: bool) -> dict[str, Any]:
    """Return the add-ons that are wanted beside GKE's own."""
    return {
        "gce_persistent_disk_csi_driver_config": {"enabled": True},
        "gcs_fuse_csi_driver_config": {"enabled": True},
        **({"lustre_csi_driver_config": {"enabled": True}} if lustre else {}),
    }


def _blocks(value: object) -> list[str]:
    return [str(block) for block in value] if isinstance(value, (list, tuple)) else []
