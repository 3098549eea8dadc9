"""What is asked of AKS for a new cluster: private, without passwords, and not to interrupt training."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.layout import shortened
from cloudrec.providers.azure.aks import LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM = "system"  # the pool that every cluster has
_LONGEST_PREFIX = 54
_DNS = 10  # the address of the cluster's name server, counted from the services' first


def cluster(
    models: Any,  # noqa: ANN401 - the SDK is seen as Any
    asked: Mapping[str, Any],
    *,
    name: str,
    version: str,
    tags: Mapping[str, str],
    subnet: str,
    identity: str,
    kubelet: Any,  # noqa: ANN401 - the SDK's model
) -> Any:  # noqa: ANN401 - the SDK's model
    """Return the cluster as the SDK wants it.

    Args:
        models: the SDK's models.
        asked: the resource's properties.
        name: of the cluster.
        version: of Kubernetes.
        tags: of the cluster and its nodes' resources.
        subnet: id of the nodes' subnet.
        identity: id of the identity that the control plane has.
        kubelet: the identity that the nodes have, as Azure describes it.
    """
    return models.ManagedCluster(
        location=asked["location"],
        tags=dict(tags),
        sku=models.ManagedClusterSKU(name="Base", tier=asked["tier"]),
        identity=models.ManagedClusterIdentity(
            type="UserAssigned",
            user_assigned_identities={identity: models.ManagedServiceIdentityUserAssignedIdentitiesValue()},
        ),
        kubernetes_version=version,
        dns_prefix=shortened(name, _LONGEST_PREFIX),
        node_resource_group=asked["node_group"],
        enable_rbac=True,
        agent_pool_profiles=[_system(models, asked, tags=tags, version=version, subnet=subnet)],
        identity_profile={
            "kubeletidentity": models.UserAssignedIdentity(
                resource_id=kubelet.id, client_id=kubelet.client_id, object_id=kubelet.principal_id
            )
        },
        network_profile=_network(models, asked),
        api_server_access_profile=api_server(models, asked),
        # Without Entra ID nobody could log in once there are no local accounts.
        disable_local_accounts=True,
        aad_profile=models.ManagedClusterAADProfile(managed=True, enable_azure_rbac=True),
        oidc_issuer_profile=models.ManagedClusterOIDCIssuerProfile(enabled=True),
        security_profile=models.ManagedClusterSecurityProfile(
            workload_identity=models.ManagedClusterSecurityProfileWorkloadIdentity(enabled=True)
        ),
        storage_profile=models.ManagedClusterStorageProfile(
            blob_csi_driver=models.ManagedClusterStorageProfileBlobCSIDriver(enabled=True)
        ),
        # By itself AKS gives nodes a new image every week, in the midst of a run.
        auto_upgrade_profile=models.ManagedClusterAutoUpgradeProfile(
            upgrade_channel="none", node_os_upgrade_channel="None"
        ),
    )


def api_server(models: Any, asked: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the SDK's model
    """Return who reaches the API server: whoever is in the network, or some addresses outside too."""
    blocks = list(asked["public_access"])
    if blocks:
        return models.ManagedClusterAPIServerAccessProfile(
            enable_private_cluster=False, authorized_ip_ranges=blocks
        )
    return models.ManagedClusterAPIServerAccessProfile(
        enable_private_cluster=True, private_dns_zone="system", enable_private_cluster_public_fqdn=False
    )


def _network(models: Any, asked: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the SDK's model
    services = ipaddress.IPv4Network(asked["service_cidr"])
    return models.ContainerServiceNetworkProfile(
        network_plugin="azure",
        network_plugin_mode="overlay",
        network_dataplane="cilium",
        network_policy="cilium",
        pod_cidr=asked["pod_cidr"],
        service_cidr=asked["service_cidr"],
        dns_service_ip=str(services[_DNS]),
        load_balancer_sku="standard",
        outbound_type="userAssignedNATGateway",
    )


def _system(
    models: Any,  # noqa: ANN401 - the SDK is seen as Any
    asked: Mapping[str, Any],
    *,
    tags: Mapping[str, str],
    version: str,
    subnet: str,
) -> Any:  # noqa: ANN401 - the SDK's model
    """Return the pool for what is no training; operators run there too, so that it bears no taint."""
    return models.ManagedClusterAgentPoolProfile(
        name=SYSTEM,
        mode="System",
        type="VirtualMachineScaleSets",
        count=asked["system_nodes"],
        vm_size=asked["system_vm_size"],
        os_type="Linux",
        os_sku="Ubuntu",
        orchestrator_version=version,
        vnet_subnet_id=subnet,
        availability_zones=list(asked["system_zones"]) or None,
        node_labels={**asked["labels"], LABEL: "cpu"},
        tags=dict(tags),
    )
