"""The requested properties of a GKE cluster, and the message that creates it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import Properties
from cloudrec.providers.gcp.api import sdk
from cloudrec.providers.gcp.network.network import PODS, SERVICES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.gcp.nodes.cpu_nodes import FirstPool


EXCLUSION = "cloudrec"  # the name of its maintenance exclusion


@dataclass(frozen=True, kw_only=True)
class ClusterProperties(Properties):
    """The requested properties of a GKE cluster.

    Attributes:
        state: GKE's status of it, RUNNING.
        location: the region, or the zone of a zonal control plane.
        path: "projects/P/locations/LOCATION/clusters/NAME".
        authorized_networks: the blocks of addresses that reach the control plane's IP endpoint, sorted; empty
            for the DNS endpoint, which requires a permission of IAM.
        private: whether only the cluster's network reaches the control plane.
        release_channel: RAPID, REGULAR, STABLE or EXTENDED.
        workload_pool: the pool of the pods' identities: "PROJECT.svc.id.goog".
        kms_key: the path of the key that encrypts Kubernetes' secrets; empty for Google's.
        keeps_nodes: whether GKE upgrades no nodes by itself, which would interrupt runs.
        expires: the end of the cluster: ISO 8601, UTC; empty for none.
        multi_networking: True if pods use GPU network cards; None leaves the cluster as it is.
        lustre: True if pods mount Managed Lustre; None leaves the cluster as it is.
        managed_metrics: True if Managed Service for Prometheus collects DCGM's metrics of GPUs; None leaves
            the cluster as it is.
        version: of Kubernetes, or its first parts; None for the channel's own.
        first_pool: the pool that the cluster is created with.
    """

    state: str
    location: str
    path: str
    authorized_networks: list[str]
    private: bool
    release_channel: str
    workload_pool: str
    kms_key: str
    keeps_nodes: bool
    expires: str
    multi_networking: bool | None = None
    lustre: bool | None = None
    managed_metrics: bool | None = None
    version: str | None = None
    first_pool: FirstPool

    def requested(self) -> dict[str, Any]:
        """Return the fields that are not None, those of the first pool included."""
        return {**super().requested(), "first_pool": self.first_pool.requested()}


def cluster(
    asked: ClusterProperties,
    *,
    name: str,
    labels: Mapping[str, str],
    network: str,
    subnetwork: str,
    pool: sdk.container.NodePool,
) -> sdk.container.Cluster:
    """Return the SDK's message for a new cluster: private nodes, no passwords, no client certificates.

    Args:
        asked: the requested properties.
        name: of the cluster.
        labels: the labels that hold its tags.
        network: the path of the nodes' network.
        subnetwork: the path of the nodes' subnetwork.
        pool: the first pool, of CPU nodes.
    """
    of = sdk.container
    component = of.LoggingComponentConfig.Component
    body = of.Cluster(
        name=name,
        resource_labels=labels,
        network=network,
        subnetwork=subnetwork,
        ip_allocation_policy=of.IPAllocationPolicy(
            use_ip_aliases=True,
            cluster_secondary_range_name=PODS,
            services_secondary_range_name=SERVICES,
        ),
        network_config=of.NetworkConfig(
            datapath_provider=of.DatapathProvider.ADVANCED_DATAPATH,  # it also enforces network policies
            default_enable_private_nodes=True,
            enable_multi_networking=bool(asked.multi_networking),
        ),
        control_plane_endpoints_config=endpoints(asked.authorized_networks, private=asked.private),
        workload_identity_config=of.WorkloadIdentityConfig(workload_pool=asked.workload_pool),
        addons_config=addons(lustre=bool(asked.lustre)),
        shielded_nodes=of.ShieldedNodes(enabled=True),
        release_channel=of.ReleaseChannel(channel=asked.release_channel),
        master_auth=of.MasterAuth(
            client_certificate_config=of.ClientCertificateConfig(issue_client_certificate=False)
        ),
        legacy_abac=of.LegacyAbac(enabled=False),
        rbac_binding_config=of.RBACBindingConfig(
            enable_insecure_binding_system_authenticated=False,
            enable_insecure_binding_system_unauthenticated=False,
        ),
        security_posture_config=of.SecurityPostureConfig(mode=of.SecurityPostureConfig.Mode.BASIC),
        logging_config=of.LoggingConfig(
            component_config=of.LoggingComponentConfig(
                enable_components=[component.SYSTEM_COMPONENTS, component.WORKLOADS]
            )
        ),
        cost_management_config=of.CostManagementConfig(enabled=True),
        maintenance_policy=undisturbed(of.MaintenancePolicy()),
        node_pools=[pool],
    )
    if asked.version:
        body.initial_cluster_version = asked.version
    if asked.kms_key:
        body.database_encryption = encryption(asked.kms_key)
    if asked.managed_metrics:
        body.monitoring_config = monitoring(of.MonitoringConfig())
    return body


def monitoring(config: sdk.container.MonitoringConfig) -> sdk.container.MonitoringConfig:
    """Return a monitoring configuration that also collects DCGM's metrics; the components of others stay.

    DCGM's metrics need managed collection ("Collect and view DCGM metrics", GKE's documentation).
    """
    of = sdk.container
    components = of.MonitoringComponentConfig.Component
    wanted = {components.SYSTEM_COMPONENTS, components.DCGM, *config.component_config.enable_components}
    kept = of.MonitoringConfig(config)
    kept.component_config = of.MonitoringComponentConfig(enable_components=sorted(wanted))
    kept.managed_prometheus_config.enabled = True
    return kept


def collects_gpus(config: sdk.container.MonitoringConfig) -> bool:
    """Return whether the metrics of GPUs are collected."""
    dcgm = sdk.container.MonitoringComponentConfig.Component.DCGM
    return config.managed_prometheus_config.enabled and dcgm in config.component_config.enable_components


def endpoints(
    authorized_networks: Sequence[str], *, private: bool
) -> sdk.container.ControlPlaneEndpointsConfig:
    """Return the endpoints of the control plane.

    Without authorized networks, only the DNS endpoint is open, and each call requires a permission of IAM;
    a private cluster's DNS endpoint answers only the cluster's network. With authorized networks, only the IP
    endpoint is open, to these networks. GKE requires one endpoint: a private cluster has an internal IP.
    """
    of = sdk.container
    has_address = bool(authorized_networks) or private
    ip_endpoints = of.ControlPlaneEndpointsConfig.IPEndpointsConfig(enabled=has_address)
    if has_address:
        # GKE makes an IP endpoint public unless this is set.
        ip_endpoints.enable_public_endpoint = bool(authorized_networks)
    if authorized_networks:
        ip_endpoints.authorized_networks_config = of.MasterAuthorizedNetworksConfig(
            enabled=True,
            cidr_blocks=[
                of.MasterAuthorizedNetworksConfig.CidrBlock(cidr_block=block) for block in authorized_networks
            ],
            gcp_public_cidrs_access_enabled=False,
        )
    return of.ControlPlaneEndpointsConfig(
        dns_endpoint_config=of.ControlPlaneEndpointsConfig.DNSEndpointConfig(
            allow_external_traffic=not (authorized_networks or private)
        ),
        ip_endpoints_config=ip_endpoints,
    )


def undisturbed(policy: sdk.container.MaintenancePolicy) -> sdk.container.MaintenancePolicy:
    """Return a maintenance policy with an exclusion that keeps the nodes until the version's end of support.

    The control plane still gets patches, and `up` with a version upgrades all. Exclusions of others stay.
    """
    of = sdk.container
    kept = of.MaintenancePolicy(policy)
    kept.window.maintenance_exclusions[EXCLUSION] = of.TimeWindow(
        start_time=datetime.now(UTC),
        maintenance_exclusion_options=of.MaintenanceExclusionOptions(
            scope=of.MaintenanceExclusionOptions.Scope.NO_MINOR_OR_NODE_UPGRADES,
            end_time_behavior=of.MaintenanceExclusionOptions.EndTimeBehavior.UNTIL_END_OF_SUPPORT,
        ),
    )
    return kept


def is_undisturbed(policy: sdk.container.MaintenancePolicy) -> bool:
    """Return whether an exclusion keeps the nodes of a cluster now."""
    scopes = sdk.container.MaintenanceExclusionOptions.Scope
    now = datetime.now(UTC)
    return any(
        window.maintenance_exclusion_options.scope in {scopes.NO_MINOR_OR_NODE_UPGRADES, scopes.NO_UPGRADES}
        and window.end_time is not None
        and window.end_time > now
        for window in policy.window.maintenance_exclusions.values()
    )


def encryption(key: str) -> sdk.container.DatabaseEncryption:
    """Return the encryption of Kubernetes' secrets: with this key as well, or with Google's key only."""
    of, states = sdk.container, sdk.container.DatabaseEncryption.State
    if key:
        return of.DatabaseEncryption(state=states.ENCRYPTED, key_name=key)
    return of.DatabaseEncryption(state=states.DECRYPTED)


def key_of(encryption: sdk.container.DatabaseEncryption) -> str:
    """Return the key that encrypts Kubernetes' secrets; GKE still names one that it uses no longer."""
    is_off = encryption.state == sdk.container.DatabaseEncryption.State.DECRYPTED
    return "" if is_off else encryption.key_name


def addons(*, lustre: bool) -> sdk.container.AddonsConfig:
    """Return the GKE add-ons to enable besides the default ones."""
    of = sdk.container
    wanted = of.AddonsConfig(
        gce_persistent_disk_csi_driver_config=of.GcePersistentDiskCsiDriverConfig(enabled=True),
        gcs_fuse_csi_driver_config=of.GcsFuseCsiDriverConfig(enabled=True),
    )
    if lustre:
        wanted.lustre_csi_driver_config = of.LustreCsiDriverConfig(enabled=True)
    return wanted
