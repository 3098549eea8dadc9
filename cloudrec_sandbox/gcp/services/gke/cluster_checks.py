"""What GKE refuses of a cluster at once, and the defaults that it fills in."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from google.cloud.container_v1.types import (
    Cluster,
    DatabaseEncryption,
    DatapathProvider,
    MaintenanceExclusionOptions,
    MonitoringComponentConfig,
    ReleaseChannel,
)

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.resources import checks
from cloudrec_sandbox.gcp.resources.places import ZONES, region_of, zones_of
from cloudrec_sandbox.gcp.services.gke import network, versions
from cloudrec_sandbox.gcp.services.gke.pool_checks import LONGEST_NAME, check, invalid

if TYPE_CHECKING:
    from google.cloud.container_v1.types import MaintenancePolicy, MonitoringConfig

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

_SUPPORT_S = 200 * 86400  # until the end of support of a version
_LONGEST_DAYS = 30  # of an exclusion of all upgrades
_DEFAULT_ZONES = 3  # of a regional cluster that names none
_SERVICES = "34.118.224.0/20"  # GKE's own range for services, if none is named


def checked(call: Call, path: str, wish: Cluster) -> Cluster:
    """Return the cluster as it will be; GcpError if GKE refuses it."""
    _, project, _, location, *_ = path.split("/")
    if not checks.is_name(wish.name, LONGEST_NAME):
        raise invalid(
            f'Invalid value for field "cluster.name": "{wish.name}". Must be at most {LONGEST_NAME}'
            " characters of lowercase letters, digits and dashes, starting with a letter and not ending with"
            " a dash."
        )
    cluster = Cluster(wish)
    _place(cluster, location)
    checks.labels(cluster.resource_labels, "cluster.resource_labels")
    _release(cluster)
    _network(call, cluster, project, region_of(location))
    _endpoints(cluster)
    _security(cluster, project)
    maintenance(call.world, cluster, cluster.maintenance_policy)
    check_monitoring(cluster.monitoring_config)
    if cluster.autopilot.enabled:
        raise GcpError("UNIMPLEMENTED", "this stand-in has no Autopilot clusters")
    if cluster.initial_node_count or cluster.node_config:
        raise GcpError("UNIMPLEMENTED", "this stand-in knows only clusters that are given node_pools")
    if not cluster.node_pools:
        raise invalid("Cluster.initial_node_count must be greater than zero.")
    names = [pool.name for pool in cluster.node_pools]
    if len(set(names)) < len(names):
        raise invalid("Node pools of one cluster must have different names.")
    for pool in cluster.node_pools:
        check(call, cluster, path, pool)
    return cluster


def _place(cluster: Cluster, location: str) -> None:
    offered = zones_of(region_of(location))
    if not zones_of(location):
        raise invalid(f'Location "{location}" does not exist.')
    wanted = list(cluster.locations)
    if unknown := [zone for zone in wanted if zone not in offered]:
        raise invalid(f'Location "{unknown[0]}" is not a zone of region "{region_of(location)}".')
    if location in ZONES and wanted and location not in wanted:
        raise invalid(f'The locations of a zonal cluster must have its own zone "{location}".')
    cluster.location = cluster.zone = location
    cluster.locations = wanted or list(zones_of(location))[:_DEFAULT_ZONES]


def _release(cluster: Cluster) -> None:
    channel = cluster.release_channel.channel
    if channel == ReleaseChannel.Channel.UNSPECIFIED:
        channel = ReleaseChannel.Channel.REGULAR
    version = versions.resolve(cluster.initial_cluster_version, channel)
    cluster.release_channel = ReleaseChannel(channel=channel)
    cluster.initial_cluster_version = version
    cluster.current_master_version = cluster.current_node_version = version


def _network(call: Call, cluster: Cluster, project: str, region: str) -> None:
    net = network.network(call.world, cluster.network, project)
    if not cluster.subnetwork:
        raise invalid(f'Network "{net.name}" requires a subnetwork to be given.')
    subnet = network.subnetwork(call.world, cluster.subnetwork, project, region)
    if not network.belongs(subnet, net):
        raise invalid(f'Subnetwork "{subnet.name}" is not one of network "{net.name}".')
    cluster.network, cluster.subnetwork = net.name, subnet.name
    cluster.network_config.network, cluster.network_config.subnetwork = net.path, subnet.path
    config, ranges = cluster.network_config, cluster.ip_allocation_policy
    # Multi-network needs Dataplane V2 (google-cloud-container's NetworkConfig).
    dataplane_v2 = config.datapath_provider == DatapathProvider.ADVANCED_DATAPATH
    if config.enable_multi_networking and not dataplane_v2:
        raise invalid("Multi-networking requires Dataplane V2 (datapath_provider ADVANCED_DATAPATH).")
    if cluster.network_policy.enabled and dataplane_v2:
        raise invalid("Network policy is part of Dataplane V2 and must not be enabled beside it.")
    if not ranges.use_ip_aliases or not ranges.cluster_secondary_range_name:
        raise GcpError(
            "UNIMPLEMENTED", "this stand-in knows only VPC-native clusters with a secondary range for pods"
        )
    cluster.cluster_ipv4_cidr = network.secondary(subnet, ranges.cluster_secondary_range_name)
    services = ranges.services_secondary_range_name
    if services and services == ranges.cluster_secondary_range_name:
        raise invalid("Pods and services must have different secondary ranges.")
    cluster.services_ipv4_cidr = network.secondary(subnet, services) if services else _SERVICES
    ranges.cluster_ipv4_cidr = ranges.cluster_ipv4_cidr_block = cluster.cluster_ipv4_cidr
    ranges.services_ipv4_cidr = ranges.services_ipv4_cidr_block = cluster.services_ipv4_cidr


def _endpoints(cluster: Cluster) -> None:
    endpoints = cluster.control_plane_endpoints_config
    ip = endpoints.ip_endpoints_config
    by_name = endpoints.dns_endpoint_config.allow_external_traffic
    if "enabled" in ip and not ip.enabled and not by_name:
        raise invalid("At least one control plane endpoint must be enabled: by DNS or by IP.")
    old, new = cluster.master_authorized_networks_config, ip.authorized_networks_config
    if old and new:
        raise invalid("Authorized networks can be given once: in ip_endpoints_config.")
    if new.cidr_blocks and not new.enabled:
        raise invalid("Authorized networks need enabled where cidr_blocks are given.")


def check_monitoring(config: MonitoringConfig) -> None:
    """Raise GcpError for a package of metrics that needs another one.

    "Collect and view DCGM metrics", GKE's documentation: they need managed collection. Other packages need
    the system metrics ("Configure metrics collection").
    """
    components = MonitoringComponentConfig.Component
    wanted = set(config.component_config.enable_components)
    if components.DCGM in wanted and not config.managed_prometheus_config.enabled:
        raise invalid("DCGM metrics require managed collection of Managed Service for Prometheus.")
    if wanted and components.SYSTEM_COMPONENTS not in wanted:
        raise invalid("SYSTEM_COMPONENTS must be enabled to enable other monitoring components.")


def maintenance(world: World, cluster: Cluster, policy: MaintenancePolicy) -> None:
    """Raise GcpError for exclusions that GKE refuses; give the others their end.

    See google-cloud-container's MaintenanceExclusionOptions and "Maintenance windows and exclusions", GKE's
    documentation: a scope needs a release channel, and an exclusion of all upgrades lasts 30 days at most.
    """
    of = MaintenanceExclusionOptions
    for name, window in policy.window.maintenance_exclusions.items():
        options = window.maintenance_exclusion_options
        if options.scope != of.Scope.NO_UPGRADES and not cluster.release_channel.channel:
            raise invalid(f'Maintenance exclusion "{name}" has a scope: the cluster needs a release channel.')
        if options.end_time_behavior == of.EndTimeBehavior.UNTIL_END_OF_SUPPORT:
            if options.scope == of.Scope.NO_UPGRADES:
                raise invalid(f'Maintenance exclusion "{name}" of all upgrades needs an end time.')
            window.end_time = as_datetime(world.now() + _SUPPORT_S)
        elif not window.end_time or (window.start_time and window.end_time <= window.start_time):
            raise invalid(f'Maintenance exclusion "{name}" must end after its start.')
        elif options.scope == of.Scope.NO_UPGRADES and (window.end_time - window.start_time) > timedelta(
            days=_LONGEST_DAYS
        ):
            raise invalid(f'Maintenance exclusion "{name}" lasts longer than {_LONGEST_DAYS} days.')


def _security(cluster: Cluster, project: str) -> None:
    pool = cluster.workload_identity_config.workload_pool
    if pool and pool != f"{project}.svc.id.goog":
        raise invalid(f'Workload pool "{pool}" is not supported: it must be "{project}.svc.id.goog".')
    encryption = cluster.database_encryption
    if encryption.state == DatabaseEncryption.State.ENCRYPTED and not encryption.key_name:
        raise invalid("Database encryption needs a key_name.")
