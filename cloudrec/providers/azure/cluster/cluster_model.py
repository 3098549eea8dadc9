"""The SDK's model of a new AKS cluster: private, without local accounts, without automatic upgrades."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.providers.azure.api.aks import LABEL
from cloudrec.providers.azure.api.models import containerservice as of
from cloudrec.providers.azure.api.tracked import LocatedProperties
from cloudrec.providers.base.layout import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.azure.api import models

SYSTEM = "system"  # the name of the system node pool
_LONGEST_PREFIX = 54  # characters; AKS's limit
_DNS = 10  # index of the DNS server's address in the services' block, which the model must have


@dataclass(frozen=True, kw_only=True)
class AzureClusterProperties(LocatedProperties):
    """The requested properties of an AKS cluster.

    Attributes:
        state: Azure's provisioning state.
        node_group: the name of the resource group that AKS makes for the nodes.
        private: whether the API server has a private address alone.
        public_access: the blocks of addresses that reach a public API server, sorted.
        tier: of the control plane: "Free", or "Standard" with an uptime guarantee.
        pod_cidr: the pods' block of addresses.
        service_cidr: the services' block of addresses.
        system_vm_size: VM size of the system nodes, on which everything except training runs.
        system_nodes: number of system nodes.
        system_zones: zones of the system nodes; empty in a region without zones.
        labels: the settings' labels, for the system nodes.
        expires: when the cluster ends, in ISO 8601 and UTC; empty if it has no end, None if only the workflow
            that ends it has its present end.
        managed_metrics: True if Azure Monitor's agent collects Prometheus metrics; None leaves it as it is.
        version: of Kubernetes, such as 1.34 or 1.34.2; None for the newest at creation, and any later.
    """

    state: str = "Succeeded"
    node_group: str
    private: bool
    public_access: list[str]
    tier: str
    pod_cidr: str
    service_cidr: str
    system_vm_size: str
    system_nodes: int
    system_zones: list[str]
    labels: dict[str, str]
    expires: str | None
    managed_metrics: bool | None = None
    version: str | None = None


def cluster(
    requested: AzureClusterProperties,
    *,
    name: str,
    version: str,
    tags: Mapping[str, str],
    subnet: str,
    identity: str,
    kubelet: models.managedidentity.Identity,
) -> of.ManagedCluster:
    """Return the SDK's model of the cluster.

    Args:
        requested: the resource's properties.
        name: of the cluster.
        version: of Kubernetes.
        tags: for the cluster and the system nodes.
        subnet: id of the nodes' subnet.
        identity: id of the control plane's identity.
        kubelet: the nodes' identity, as Azure describes it.
    """
    model = of.ManagedCluster(
        location=requested.location,
        tags=dict(tags),
        sku=of.ManagedClusterSKU(name="Base", tier=requested.tier),
        identity=of.ManagedClusterIdentity(
            type="UserAssigned",
            user_assigned_identities={identity: of.ManagedServiceIdentityUserAssignedIdentitiesValue()},
        ),
        properties=of.ManagedClusterProperties(
            kubernetes_version=version,
            dns_prefix=shortened(name, _LONGEST_PREFIX),
            node_resource_group=requested.node_group,
            enable_rbac=True,
            agent_pool_profiles=[_system(requested, tags=tags, version=version, subnet=subnet)],
            identity_profile={
                "kubeletidentity": of.UserAssignedIdentity(
                    resource_id=kubelet.id, client_id=kubelet.client_id, object_id=kubelet.principal_id
                )
            },
            network_profile=_network(requested),
            api_server_access_profile=api_server(requested),
            # Without local accounts, every login fails unless Entra ID is enabled as below.
            disable_local_accounts=True,
            aad_profile=of.ManagedClusterAADProfile(managed=True, enable_azure_rbac=True),
            # Older versions of Kubernetes have no issuer by default, and federated credentials need one.
            oidc_issuer_profile=of.ManagedClusterOIDCIssuerProfile(enabled=True),
            security_profile=of.ManagedClusterSecurityProfile(
                workload_identity=of.ManagedClusterSecurityProfileWorkloadIdentity(enabled=True)
            ),
            storage_profile=of.ManagedClusterStorageProfile(
                blob_csi_driver=of.ManagedClusterStorageProfileBlobCSIDriver(enabled=True)
            ),
            # By default AKS replaces the nodes' image every week, which would interrupt runs.
            auto_upgrade_profile=of.ManagedClusterAutoUpgradeProfile(
                upgrade_channel="none", node_os_upgrade_channel="None"
            ),
        ),
    )
    if requested.managed_metrics and model.properties is not None:
        monitor(model.properties)
    return model


def monitor(properties: of.ManagedClusterProperties) -> None:
    """Let Azure Monitor's agent collect Prometheus metrics; the rest of its profile stays."""
    profile = properties.azure_monitor_profile or of.ManagedClusterAzureMonitorProfile()
    profile.metrics = profile.metrics or of.ManagedClusterAzureMonitorProfileMetrics(enabled=True)
    profile.metrics.enabled = True
    properties.azure_monitor_profile = profile


def is_monitored(row: of.ManagedCluster) -> bool:
    """Return whether Azure Monitor's agent collects Prometheus metrics."""
    profile = row.azure_monitor_profile
    return bool(profile and profile.metrics and profile.metrics.enabled)


def api_server(requested: AzureClusterProperties) -> of.ManagedClusterAPIServerAccessProfile:
    """Return the API server's access profile: private, or public for the requested addresses."""
    blocks = list(requested.public_access)
    if blocks:
        return of.ManagedClusterAPIServerAccessProfile(
            enable_private_cluster=False, authorized_ip_ranges=blocks
        )
    return of.ManagedClusterAPIServerAccessProfile(
        enable_private_cluster=True, private_dns_zone="system", enable_private_cluster_public_fqdn=False
    )


def _network(requested: AzureClusterProperties) -> of.ContainerServiceNetworkProfile:
    services = ipaddress.IPv4Network(requested.service_cidr)
    return of.ContainerServiceNetworkProfile(
        network_plugin="azure",
        network_plugin_mode="overlay",
        network_dataplane="cilium",
        network_policy="cilium",
        pod_cidr=requested.pod_cidr,
        service_cidr=requested.service_cidr,
        dns_service_ip=str(services[_DNS]),
        load_balancer_sku="standard",
        # The subnet has a NAT gateway already; by default AKS would create a load balancer for outbound
        # traffic.
        outbound_type="userAssignedNATGateway",
    )


def _system(
    requested: AzureClusterProperties,
    *,
    tags: Mapping[str, str],
    version: str,
    subnet: str,
) -> of.ManagedClusterAgentPoolProfile:
    """Return the system node pool. It has no taint, because the operators of add-ons run there too."""
    return of.ManagedClusterAgentPoolProfile(
        name=SYSTEM,
        mode="System",
        type="VirtualMachineScaleSets",
        count=requested.system_nodes,
        vm_size=requested.system_vm_size,
        os_type="Linux",
        os_sku="Ubuntu",
        orchestrator_version=version,
        vnet_subnet_id=subnet,
        availability_zones=list(requested.system_zones) or None,
        node_labels={**requested.labels, LABEL: "cpu"},
        tags=dict(tags),
    )
