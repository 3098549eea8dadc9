"""Messages of Compute Engine; written by scripts/compute_stubs.py."""

from collections.abc import MutableMapping, MutableSequence

import proto
from google.protobuf import any_pb2

class AWSV4Signature(proto.Message):
    access_key: str
    access_key_id: str
    access_key_version: str
    origin_region: str

class AcceleratorConfig(proto.Message):
    accelerator_count: int
    accelerator_type: str

class Accelerators(proto.Message):
    guest_accelerator_count: int
    guest_accelerator_type: str

class AccessConfig(proto.Message):
    external_ipv6: str
    external_ipv6_prefix_length: int
    kind: str
    name: str
    nat_i_p: str
    network_tier: str
    public_ptr_domain_name: str
    security_policy: str
    set_public_ptr: bool
    type_: str

class Address(proto.Message):
    address: str
    address_type: str
    creation_timestamp: str
    description: str
    id: int
    ip_collection: str
    ip_version: str
    ipv6_endpoint_type: str
    kind: str
    label_fingerprint: str
    labels: MutableMapping[str, str]
    name: str
    network: str
    network_tier: str
    prefix_length: int
    purpose: str
    region: str
    self_link: str
    status: str
    subnetwork: str
    users: MutableSequence[str]

class AddressesScopedList(proto.Message):
    addresses: MutableSequence[Address]
    warning: Warning

class AdvancedMachineFeatures(proto.Message):
    enable_nested_virtualization: bool
    enable_uefi_networking: bool
    performance_monitoring_unit: str
    threads_per_core: int
    turbo_mode: str
    visible_core_count: int

class AggregatedListAddressesRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListBackendServicesRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListDisksRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListForwardingRulesRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListFutureReservationsRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListGlobalOperationsRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListHealthChecksRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListInstanceGroupManagersRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListInstanceGroupsRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListMachineTypesRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListNetworkEndpointGroupsRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListReservationsRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListResourcePoliciesRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListRoutersRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListSubnetworksRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int
    views: str

class AggregatedListTargetHttpProxiesRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListTargetHttpsProxiesRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListTargetPoolsRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AggregatedListUrlMapsRequest(proto.Message):
    filter: str
    include_all_scopes: bool
    max_results: int
    order_by: str
    page_token: str
    project: str
    service_project_number: int

class AliasIpRange(proto.Message):
    ip_cidr_range: str
    subnetwork_range_name: str

class AllocationAggregateReservation(proto.Message):
    in_use_resources: MutableSequence[AllocationAggregateReservationReservedResourceInfo]
    reserved_resources: MutableSequence[AllocationAggregateReservationReservedResourceInfo]
    vm_family: str
    workload_type: str

class AllocationAggregateReservationReservedResourceInfo(proto.Message):
    accelerator: AllocationAggregateReservationReservedResourceInfoAccelerator

class AllocationAggregateReservationReservedResourceInfoAccelerator(proto.Message):
    accelerator_count: int
    accelerator_type: str

class AllocationReservationSharingPolicy(proto.Message):
    service_share_type: str

class AllocationResourceStatus(proto.Message):
    health_info: AllocationResourceStatusHealthInfo
    reservation_block_count: int
    reservation_maintenance: GroupMaintenanceInfo
    specific_sku_allocation: AllocationResourceStatusSpecificSKUAllocation

class AllocationResourceStatusHealthInfo(proto.Message):
    degraded_block_count: int
    health_status: str
    healthy_block_count: int

class AllocationResourceStatusSpecificSKUAllocation(proto.Message):
    source_instance_template_id: str
    utilizations: MutableMapping[str, int]

class AllocationSpecificSKUAllocationAllocatedInstancePropertiesReservedDisk(proto.Message):
    disk_size_gb: int
    interface: str

class AllocationSpecificSKUAllocationReservedInstanceProperties(proto.Message):
    guest_accelerators: MutableSequence[AcceleratorConfig]
    local_ssds: MutableSequence[AllocationSpecificSKUAllocationAllocatedInstancePropertiesReservedDisk]
    location_hint: str
    machine_type: str
    min_cpu_platform: str

class AllocationSpecificSKUReservation(proto.Message):
    assured_count: int
    count: int
    in_use_count: int
    instance_properties: AllocationSpecificSKUAllocationReservedInstanceProperties
    source_instance_template: str

class Allowed(proto.Message):
    I_p_protocol: str
    ports: MutableSequence[str]

class AttachedDisk(proto.Message):
    architecture: str
    auto_delete: bool
    boot: bool
    device_name: str
    disk_encryption_key: CustomerEncryptionKey
    disk_size_gb: int
    force_attach: bool
    guest_os_features: MutableSequence[GuestOsFeature]
    index: int
    initialize_params: AttachedDiskInitializeParams
    interface: str
    kind: str
    licenses: MutableSequence[str]
    mode: str
    saved_state: str
    shielded_instance_initial_state: InitialStateConfig
    source: str
    type_: str

class AttachedDiskInitializeParams(proto.Message):
    architecture: str
    description: str
    disk_name: str
    disk_size_gb: int
    disk_type: str
    enable_confidential_compute: bool
    labels: MutableMapping[str, str]
    licenses: MutableSequence[str]
    on_update_action: str
    provisioned_iops: int
    provisioned_throughput: int
    replica_zones: MutableSequence[str]
    resource_manager_tags: MutableMapping[str, str]
    resource_policies: MutableSequence[str]
    source_image: str
    source_image_encryption_key: CustomerEncryptionKey
    source_snapshot: str
    source_snapshot_encryption_key: CustomerEncryptionKey
    storage_pool: str

class Backend(proto.Message):
    balancing_mode: str
    capacity_scaler: float
    custom_metrics: MutableSequence[BackendCustomMetric]
    description: str
    failover: bool
    group: str
    max_connections: int
    max_connections_per_endpoint: int
    max_connections_per_instance: int
    max_in_flight_requests: int
    max_in_flight_requests_per_endpoint: int
    max_in_flight_requests_per_instance: int
    max_rate: int
    max_rate_per_endpoint: float
    max_rate_per_instance: float
    max_utilization: float
    orchestration_info: BackendBackendOrchestrationInfo
    preference: str
    traffic_duration: str

class BackendBackendOrchestrationInfo(proto.Message):
    resource_uri: str

class BackendCustomMetric(proto.Message):
    dry_run: bool
    max_utilization: float
    name: str

class BackendService(proto.Message):
    affinity_cookie_ttl_sec: int
    backends: MutableSequence[Backend]
    cdn_policy: BackendServiceCdnPolicy
    circuit_breakers: CircuitBreakers
    compression_mode: str
    connection_draining: ConnectionDraining
    connection_tracking_policy: BackendServiceConnectionTrackingPolicy
    consistent_hash: ConsistentHashLoadBalancerSettings
    creation_timestamp: str
    custom_metrics: MutableSequence[BackendServiceCustomMetric]
    custom_request_headers: MutableSequence[str]
    custom_response_headers: MutableSequence[str]
    description: str
    edge_security_policy: str
    enable_c_d_n: bool
    external_managed_migration_state: str
    external_managed_migration_testing_percentage: float
    failover_policy: BackendServiceFailoverPolicy
    fingerprint: str
    ha_policy: BackendServiceHAPolicy
    health_checks: MutableSequence[str]
    iap: BackendServiceIAP
    id: int
    ip_address_selection_policy: str
    kind: str
    load_balancing_scheme: str
    locality_lb_policies: MutableSequence[BackendServiceLocalityLoadBalancingPolicyConfig]
    locality_lb_policy: str
    log_config: BackendServiceLogConfig
    max_stream_duration: Duration
    metadatas: MutableMapping[str, str]
    name: str
    network: str
    network_pass_through_lb_traffic_policy: BackendServiceNetworkPassThroughLbTrafficPolicy
    orchestration_info: BackendServiceOrchestrationInfo
    outlier_detection: OutlierDetection
    params: BackendServiceParams
    port: int
    port_name: str
    protocol: str
    region: str
    security_policy: str
    security_settings: SecuritySettings
    self_link: str
    service_bindings: MutableSequence[str]
    service_lb_policy: str
    session_affinity: str
    strong_session_affinity_cookie: BackendServiceHttpCookie
    subsetting: Subsetting
    timeout_sec: int
    tls_settings: BackendServiceTlsSettings
    used_by: MutableSequence[BackendServiceUsedBy]

class BackendServiceCdnPolicy(proto.Message):
    bypass_cache_on_request_headers: MutableSequence[BackendServiceCdnPolicyBypassCacheOnRequestHeader]
    cache_key_policy: CacheKeyPolicy
    cache_mode: str
    client_ttl: int
    default_ttl: int
    max_ttl: int
    negative_caching: bool
    negative_caching_policy: MutableSequence[BackendServiceCdnPolicyNegativeCachingPolicy]
    request_coalescing: bool
    serve_while_stale: int
    signed_url_cache_max_age_sec: int
    signed_url_key_names: MutableSequence[str]

class BackendServiceCdnPolicyBypassCacheOnRequestHeader(proto.Message):
    header_name: str

class BackendServiceCdnPolicyNegativeCachingPolicy(proto.Message):
    code: int
    ttl: int

class BackendServiceConnectionTrackingPolicy(proto.Message):
    connection_persistence_on_unhealthy_backends: str
    enable_strong_affinity: bool
    idle_timeout_sec: int
    tracking_mode: str

class BackendServiceCustomMetric(proto.Message):
    dry_run: bool
    name: str

class BackendServiceFailoverPolicy(proto.Message):
    disable_connection_drain_on_failover: bool
    drop_traffic_if_unhealthy: bool
    failover_ratio: float

class BackendServiceHAPolicy(proto.Message):
    fast_i_p_move: str
    leader: BackendServiceHAPolicyLeader

class BackendServiceHAPolicyLeader(proto.Message):
    backend_group: str
    network_endpoint: BackendServiceHAPolicyLeaderNetworkEndpoint

class BackendServiceHAPolicyLeaderNetworkEndpoint(proto.Message):
    instance: str

class BackendServiceHttpCookie(proto.Message):
    name: str
    path: str
    ttl: Duration

class BackendServiceIAP(proto.Message):
    enabled: bool
    oauth2_client_id: str
    oauth2_client_secret: str
    oauth2_client_secret_sha256: str

class BackendServiceLocalityLoadBalancingPolicyConfig(proto.Message):
    custom_policy: BackendServiceLocalityLoadBalancingPolicyConfigCustomPolicy
    policy: BackendServiceLocalityLoadBalancingPolicyConfigPolicy

class BackendServiceLocalityLoadBalancingPolicyConfigCustomPolicy(proto.Message):
    data: str
    name: str

class BackendServiceLocalityLoadBalancingPolicyConfigPolicy(proto.Message):
    name: str

class BackendServiceLogConfig(proto.Message):
    enable: bool
    logging_http_request_headers: MutableSequence[BackendServiceLogConfigLoggingHttpHeader]
    logging_http_response_headers: MutableSequence[BackendServiceLogConfigLoggingHttpHeader]
    optional_fields: MutableSequence[str]
    optional_mode: str
    sample_rate: float

class BackendServiceLogConfigLoggingHttpHeader(proto.Message):
    header_name: str

class BackendServiceNetworkPassThroughLbTrafficPolicy(proto.Message):
    zonal_affinity: BackendServiceNetworkPassThroughLbTrafficPolicyZonalAffinity

class BackendServiceNetworkPassThroughLbTrafficPolicyZonalAffinity(proto.Message):
    spillover: str
    spillover_ratio: float

class BackendServiceOrchestrationInfo(proto.Message):
    resource_uri: str

class BackendServiceParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class BackendServiceTlsSettings(proto.Message):
    authentication_config: str
    identity: str
    sni: str
    subject_alt_names: MutableSequence[BackendServiceTlsSettingsSubjectAltName]

class BackendServiceTlsSettingsSubjectAltName(proto.Message):
    dns_name: str
    uniform_resource_identifier: str

class BackendServiceUsedBy(proto.Message):
    reference: str

class BackendServicesScopedList(proto.Message):
    backend_services: MutableSequence[BackendService]
    warning: Warning

class BulkInsertOperationStatus(proto.Message):
    created_vm_count: int
    deleted_vm_count: int
    failed_to_create_vm_count: int
    status: str
    target_vm_count: int

class BundledLocalSsds(proto.Message):
    default_interface: str
    partition_count: int

class CacheKeyPolicy(proto.Message):
    include_host: bool
    include_http_headers: MutableSequence[str]
    include_named_cookies: MutableSequence[str]
    include_protocol: bool
    include_query_string: bool
    query_string_blacklist: MutableSequence[str]
    query_string_whitelist: MutableSequence[str]

class CachePolicy(proto.Message):
    cache_bypass_request_header_names: MutableSequence[str]
    cache_key_policy: CachePolicyCacheKeyPolicy
    cache_mode: str
    client_ttl: Duration
    default_ttl: Duration
    max_ttl: Duration
    negative_caching: bool
    negative_caching_policy: MutableSequence[CachePolicyNegativeCachingPolicy]
    request_coalescing: bool
    serve_while_stale: Duration

class CachePolicyCacheKeyPolicy(proto.Message):
    excluded_query_parameters: MutableSequence[str]
    include_host: bool
    include_protocol: bool
    include_query_string: bool
    included_cookie_names: MutableSequence[str]
    included_header_names: MutableSequence[str]
    included_query_parameters: MutableSequence[str]

class CachePolicyNegativeCachingPolicy(proto.Message):
    code: int
    ttl: Duration

class CalendarModeAdviceRequest(proto.Message):
    future_resources_specs: MutableMapping[str, FutureResourcesSpec]

class CalendarModeAdviceResponse(proto.Message):
    recommendations: MutableSequence[CalendarModeRecommendation]

class CalendarModeAdviceRpcRequest(proto.Message):
    calendar_mode_advice_request_resource: CalendarModeAdviceRequest
    project: str
    region: str

class CalendarModeRecommendation(proto.Message):
    recommendations_per_spec: MutableMapping[str, FutureResourcesRecommendation]

class CircuitBreakers(proto.Message):
    max_connections: int
    max_pending_requests: int
    max_requests: int
    max_requests_per_connection: int
    max_retries: int

class ConfidentialInstanceConfig(proto.Message):
    confidential_instance_type: str
    enable_confidential_compute: bool

class ConnectionDraining(proto.Message):
    draining_timeout_sec: int

class ConsistentHashLoadBalancerSettings(proto.Message):
    http_cookie: ConsistentHashLoadBalancerSettingsHttpCookie
    http_header_name: str
    minimum_ring_size: int

class ConsistentHashLoadBalancerSettingsHttpCookie(proto.Message):
    name: str
    path: str
    ttl: Duration

class CorsPolicy(proto.Message):
    allow_credentials: bool
    allow_headers: MutableSequence[str]
    allow_methods: MutableSequence[str]
    allow_origin_regexes: MutableSequence[str]
    allow_origins: MutableSequence[str]
    disabled: bool
    expose_headers: MutableSequence[str]
    max_age: int

class CustomErrorResponsePolicy(proto.Message):
    error_response_rules: MutableSequence[CustomErrorResponsePolicyCustomErrorResponseRule]
    error_service: str

class CustomErrorResponsePolicyCustomErrorResponseRule(proto.Message):
    match_response_codes: MutableSequence[str]
    override_response_code: int
    path: str

class CustomerEncryptionKey(proto.Message):
    kms_key_name: str
    kms_key_service_account: str
    raw_key: str
    rsa_encrypted_key: str
    sha256: str

class Data(proto.Message):
    key: str
    value: str

class DateTime(proto.Message):
    day: int
    hours: int
    minutes: int
    month: int
    nanos: int
    seconds: int
    time_zone: TimeZone
    utc_offset: str
    year: int

class DeleteAddressRequest(proto.Message):
    address: str
    project: str
    region: str
    request_id: str

class DeleteBackendServiceRequest(proto.Message):
    backend_service: str
    project: str
    request_id: str

class DeleteDiskRequest(proto.Message):
    disk: str
    project: str
    request_id: str
    zone: str

class DeleteFirewallRequest(proto.Message):
    firewall: str
    project: str
    request_id: str

class DeleteForwardingRuleRequest(proto.Message):
    forwarding_rule: str
    project: str
    region: str
    request_id: str

class DeleteFutureReservationRequest(proto.Message):
    future_reservation: str
    project: str
    request_id: str
    zone: str

class DeleteGlobalAddressRequest(proto.Message):
    address: str
    project: str
    request_id: str

class DeleteGlobalForwardingRuleRequest(proto.Message):
    forwarding_rule: str
    project: str
    request_id: str

class DeleteGlobalNetworkEndpointGroupRequest(proto.Message):
    network_endpoint_group: str
    project: str
    request_id: str

class DeleteHealthCheckRequest(proto.Message):
    health_check: str
    project: str
    request_id: str

class DeleteInstanceGroupManagerRequest(proto.Message):
    instance_group_manager: str
    no_graceful_shutdown: bool
    project: str
    request_id: str
    zone: str

class DeleteInstanceGroupRequest(proto.Message):
    instance_group: str
    project: str
    request_id: str
    zone: str

class DeleteNetworkEndpointGroupRequest(proto.Message):
    network_endpoint_group: str
    project: str
    request_id: str
    zone: str

class DeleteNetworkRequest(proto.Message):
    network: str
    project: str
    request_id: str

class DeleteRegionBackendServiceRequest(proto.Message):
    backend_service: str
    project: str
    region: str
    request_id: str

class DeleteRegionDiskRequest(proto.Message):
    disk: str
    project: str
    region: str
    request_id: str

class DeleteRegionHealthCheckRequest(proto.Message):
    health_check: str
    project: str
    region: str
    request_id: str

class DeleteRegionTargetHttpProxyRequest(proto.Message):
    project: str
    region: str
    request_id: str
    target_http_proxy: str

class DeleteRegionTargetHttpsProxyRequest(proto.Message):
    project: str
    region: str
    request_id: str
    target_https_proxy: str

class DeleteRegionUrlMapRequest(proto.Message):
    project: str
    region: str
    request_id: str
    url_map: str

class DeleteReservationRequest(proto.Message):
    project: str
    request_id: str
    reservation: str
    zone: str

class DeleteResourcePolicyRequest(proto.Message):
    project: str
    region: str
    request_id: str
    resource_policy: str

class DeleteRouterRequest(proto.Message):
    project: str
    region: str
    request_id: str
    router: str

class DeleteSubnetworkRequest(proto.Message):
    project: str
    region: str
    request_id: str
    subnetwork: str

class DeleteTargetHttpProxyRequest(proto.Message):
    project: str
    request_id: str
    target_http_proxy: str

class DeleteTargetHttpsProxyRequest(proto.Message):
    project: str
    request_id: str
    target_https_proxy: str

class DeleteTargetPoolRequest(proto.Message):
    project: str
    region: str
    request_id: str
    target_pool: str

class DeleteUrlMapRequest(proto.Message):
    project: str
    request_id: str
    url_map: str

class Denied(proto.Message):
    I_p_protocol: str
    ports: MutableSequence[str]

class DeprecationStatus(proto.Message):
    deleted: str
    deprecated: str
    obsolete: str
    replacement: str
    state: str

class Disk(proto.Message):
    access_mode: str
    architecture: str
    async_primary_disk: DiskAsyncReplication
    async_secondary_disks: MutableMapping[str, DiskAsyncReplicationList]
    creation_timestamp: str
    description: str
    disk_encryption_key: CustomerEncryptionKey
    enable_confidential_compute: bool
    guest_os_features: MutableSequence[GuestOsFeature]
    id: int
    kind: str
    label_fingerprint: str
    labels: MutableMapping[str, str]
    last_attach_timestamp: str
    last_detach_timestamp: str
    license_codes: MutableSequence[int]
    licenses: MutableSequence[str]
    location_hint: str
    name: str
    options: str
    params: DiskParams
    physical_block_size_bytes: int
    provisioned_iops: int
    provisioned_throughput: int
    region: str
    replica_zones: MutableSequence[str]
    resource_policies: MutableSequence[str]
    resource_status: DiskResourceStatus
    satisfies_pzi: bool
    satisfies_pzs: bool
    self_link: str
    size_gb: int
    source_consistency_group_policy: str
    source_consistency_group_policy_id: str
    source_disk: str
    source_disk_id: str
    source_image: str
    source_image_encryption_key: CustomerEncryptionKey
    source_image_id: str
    source_instant_snapshot: str
    source_instant_snapshot_id: str
    source_snapshot: str
    source_snapshot_encryption_key: CustomerEncryptionKey
    source_snapshot_id: str
    source_storage_object: str
    status: str
    storage_pool: str
    type_: str
    users: MutableSequence[str]
    zone: str

class DiskAsyncReplication(proto.Message):
    consistency_group_policy: str
    consistency_group_policy_id: str
    disk: str
    disk_id: str

class DiskAsyncReplicationList(proto.Message):
    async_replication_disk: DiskAsyncReplication

class DiskInstantiationConfig(proto.Message):
    auto_delete: bool
    custom_image: str
    device_name: str
    instantiate_from: str

class DiskParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class DiskResourceStatus(proto.Message):
    async_primary_disk: DiskResourceStatusAsyncReplicationStatus
    async_secondary_disks: MutableMapping[str, DiskResourceStatusAsyncReplicationStatus]

class DiskResourceStatusAsyncReplicationStatus(proto.Message):
    state: str

class DisksScopedList(proto.Message):
    disks: MutableSequence[Disk]
    warning: Warning

class DisplayDevice(proto.Message):
    enable_display: bool

class DistributionPolicy(proto.Message):
    target_shape: str
    zones: MutableSequence[DistributionPolicyZoneConfiguration]

class DistributionPolicyZoneConfiguration(proto.Message):
    zone: str

class Duration(proto.Message):
    nanos: int
    seconds: int

class Error(proto.Message):
    errors: MutableSequence[Errors]

class ErrorDetails(proto.Message):
    error_info: ErrorInfo
    help_: Help
    localized_message: LocalizedMessage
    quota_info: QuotaExceededInfo

class ErrorInfo(proto.Message):
    domain: str
    metadatas: MutableMapping[str, str]
    reason: str

class Errors(proto.Message):
    code: str
    error_details: MutableSequence[ErrorDetails]
    location: str
    message: str

class FileContentBuffer(proto.Message):
    content: str
    file_type: str

class Firewall(proto.Message):
    allowed: MutableSequence[Allowed]
    creation_timestamp: str
    denied: MutableSequence[Denied]
    description: str
    destination_ranges: MutableSequence[str]
    direction: str
    disabled: bool
    id: int
    kind: str
    log_config: FirewallLogConfig
    name: str
    network: str
    params: FirewallParams
    priority: int
    self_link: str
    source_ranges: MutableSequence[str]
    source_service_accounts: MutableSequence[str]
    source_tags: MutableSequence[str]
    target_service_accounts: MutableSequence[str]
    target_tags: MutableSequence[str]

class FirewallLogConfig(proto.Message):
    enable: bool
    metadata: str

class FirewallParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class FixedOrPercent(proto.Message):
    calculated: int
    fixed: int
    percent: int

class FlexibleTimeRange(proto.Message):
    max_duration: str
    min_duration: str
    start_time_not_earlier_than: str
    start_time_not_later_than: str

class ForwardingRule(proto.Message):
    I_p_address: str
    I_p_protocol: str
    all_ports: bool
    allow_global_access: bool
    allow_psc_global_access: bool
    attached_extensions: MutableSequence[ForwardingRuleAttachedExtension]
    backend_service: str
    base_forwarding_rule: str
    creation_timestamp: str
    description: str
    external_managed_backend_bucket_migration_state: str
    external_managed_backend_bucket_migration_testing_percentage: float
    fingerprint: str
    id: int
    ip_collection: str
    ip_version: str
    is_mirroring_collector: bool
    kind: str
    label_fingerprint: str
    labels: MutableMapping[str, str]
    load_balancing_scheme: str
    metadata_filters: MutableSequence[MetadataFilter]
    name: str
    network: str
    network_tier: str
    no_automate_dns_zone: bool
    port_range: str
    ports: MutableSequence[str]
    psc_connection_id: int
    psc_connection_status: str
    region: str
    self_link: str
    self_link_with_id: str
    service_directory_registrations: MutableSequence[ForwardingRuleServiceDirectoryRegistration]
    service_label: str
    service_name: str
    source_ip_ranges: MutableSequence[str]
    subnetwork: str
    target: str

class ForwardingRuleAttachedExtension(proto.Message):
    reference: str

class ForwardingRuleServiceDirectoryRegistration(proto.Message):
    namespace: str
    service: str
    service_directory_region: str

class ForwardingRulesScopedList(proto.Message):
    forwarding_rules: MutableSequence[ForwardingRule]
    warning: Warning

class FutureReservation(proto.Message):
    aggregate_reservation: AllocationAggregateReservation
    auto_created_reservations_delete_time: str
    auto_created_reservations_duration: Duration
    auto_delete_auto_created_reservations: bool
    colocation_resource: str
    commitment_info: FutureReservationCommitmentInfo
    confidential_compute_type: str
    creation_timestamp: str
    deployment_type: str
    description: str
    enable_emergent_maintenance: bool
    id: int
    kind: str
    name: str
    name_prefix: str
    params: FutureReservationParams
    planning_status: str
    reservation_mode: str
    reservation_name: str
    resource_metadata: ResourceMetadata
    resource_name: str
    scheduling_type: str
    self_link: str
    self_link_with_id: str
    share_settings: ShareSettings
    specific_reservation_required: bool
    specific_sku_properties: FutureReservationSpecificSKUProperties
    status: FutureReservationStatus
    storage_pool_properties: FutureReservationStoragePoolProperties
    time_window: FutureReservationTimeWindow
    zone: str

class FutureReservationCommitmentInfo(proto.Message):
    commitment_name: str
    commitment_plan: str
    previous_commitment_terms: str

class FutureReservationParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class FutureReservationSpecificSKUProperties(proto.Message):
    instance_properties: AllocationSpecificSKUAllocationReservedInstanceProperties
    source_instance_template: str
    total_count: int

class FutureReservationStatus(proto.Message):
    amendment_status: str
    auto_created_reservations: MutableSequence[str]
    exapool_provisioned_capacity_gb: StoragePoolExapoolProvisionedCapacityGb
    existing_matching_usage_info: FutureReservationStatusExistingMatchingUsageInfo
    fulfilled_count: int
    last_known_good_state: FutureReservationStatusLastKnownGoodState
    lock_time: str
    procurement_status: str
    specific_sku_properties: FutureReservationStatusSpecificSKUProperties
    storage_pool_provisioned_capacity: FutureReservationStoragePoolProvisionedCapacity

class FutureReservationStatusExistingMatchingUsageInfo(proto.Message):
    count: int
    timestamp: str

class FutureReservationStatusLastKnownGoodState(proto.Message):
    description: str
    existing_matching_usage_info: FutureReservationStatusExistingMatchingUsageInfo
    future_reservation_specs: FutureReservationStatusLastKnownGoodStateFutureReservationSpecs
    lock_time: str
    name_prefix: str
    procurement_status: str

class FutureReservationStatusLastKnownGoodStateFutureReservationSpecs(proto.Message):
    share_settings: ShareSettings
    specific_sku_properties: FutureReservationSpecificSKUProperties
    time_window: FutureReservationTimeWindow

class FutureReservationStatusSpecificSKUProperties(proto.Message):
    source_instance_template_id: str

class FutureReservationStoragePoolProperties(proto.Message):
    requested_exapool_provisioned_capacity_gb: StoragePoolExapoolProvisionedCapacityGb
    requested_storage_pool_provisioned_capacity: FutureReservationStoragePoolProvisionedCapacity
    storage_pool_type: str

class FutureReservationStoragePoolProvisionedCapacity(proto.Message):
    pool_provisioned_capacity_gb: int
    pool_provisioned_iops: int
    pool_provisioned_throughput: int

class FutureReservationTimeWindow(proto.Message):
    duration: Duration
    end_time: str
    start_time: str

class FutureReservationsScopedList(proto.Message):
    future_reservations: MutableSequence[FutureReservation]
    warning: Warning

class FutureResourcesRecommendation(proto.Message):
    end_time: str
    location: str
    other_locations: MutableMapping[str, FutureResourcesRecommendationOtherLocation]
    recommendation_id: str
    recommendation_type: str
    start_time: str

class FutureResourcesRecommendationOtherLocation(proto.Message):
    details: str
    status: str

class FutureResourcesSpec(proto.Message):
    deployment_type: str
    location_policy: FutureResourcesSpecLocationPolicy
    target_resources: FutureResourcesSpecTargetResources
    time_range_spec: FlexibleTimeRange

class FutureResourcesSpecAggregateResources(proto.Message):
    accelerator_count: int
    vm_family: str
    workload_type: str

class FutureResourcesSpecLocalSsdPartition(proto.Message):
    disk_interface: str
    disk_size_gb: int

class FutureResourcesSpecLocationPolicy(proto.Message):
    locations: MutableMapping[str, FutureResourcesSpecLocationPolicyLocation]

class FutureResourcesSpecLocationPolicyLocation(proto.Message):
    preference: str

class FutureResourcesSpecSpecificSKUResources(proto.Message):
    instance_count: int
    local_ssd_partitions: MutableSequence[FutureResourcesSpecLocalSsdPartition]
    machine_type: str

class FutureResourcesSpecTargetResources(proto.Message):
    aggregate_resources: FutureResourcesSpecAggregateResources
    specific_sku_resources: FutureResourcesSpecSpecificSKUResources

class GRPCHealthCheck(proto.Message):
    grpc_service_name: str
    port: int
    port_name: str
    port_specification: str

class GRPCTLSHealthCheck(proto.Message):
    grpc_service_name: str
    port: int
    port_specification: str

class GetAddressRequest(proto.Message):
    address: str
    project: str
    region: str

class GetBackendServiceRequest(proto.Message):
    backend_service: str
    project: str

class GetDiskRequest(proto.Message):
    disk: str
    project: str
    zone: str

class GetFirewallRequest(proto.Message):
    firewall: str
    project: str

class GetForwardingRuleRequest(proto.Message):
    forwarding_rule: str
    project: str
    region: str
    view: str

class GetFutureReservationRequest(proto.Message):
    future_reservation: str
    project: str
    zone: str

class GetGlobalAddressRequest(proto.Message):
    address: str
    project: str

class GetGlobalForwardingRuleRequest(proto.Message):
    forwarding_rule: str
    project: str
    view: str

class GetGlobalNetworkEndpointGroupRequest(proto.Message):
    network_endpoint_group: str
    project: str

class GetGlobalOperationRequest(proto.Message):
    operation: str
    project: str

class GetHealthCheckRequest(proto.Message):
    health_check: str
    project: str

class GetHealthOperationMetadata(proto.Message):
    health_info: GetHealthOperationMetadataHealthInfo

class GetHealthOperationMetadataHealthInfo(proto.Message):
    availability_slo_status: str
    health_status: str
    repair_category: str
    unhealthy_reason: str
    update_time: str

class GetInstanceGroupManagerRequest(proto.Message):
    instance_group_manager: str
    project: str
    zone: str

class GetInstanceGroupRequest(proto.Message):
    instance_group: str
    project: str
    zone: str

class GetMachineTypeRequest(proto.Message):
    machine_type: str
    project: str
    zone: str

class GetNetworkEndpointGroupRequest(proto.Message):
    network_endpoint_group: str
    project: str
    zone: str

class GetNetworkProfileRequest(proto.Message):
    network_profile: str
    project: str

class GetNetworkRequest(proto.Message):
    network: str
    project: str

class GetProjectRequest(proto.Message):
    project: str

class GetRegionBackendServiceRequest(proto.Message):
    backend_service: str
    project: str
    region: str

class GetRegionDiskRequest(proto.Message):
    disk: str
    project: str
    region: str

class GetRegionHealthCheckRequest(proto.Message):
    health_check: str
    project: str
    region: str

class GetRegionOperationRequest(proto.Message):
    operation: str
    project: str
    region: str

class GetRegionRequest(proto.Message):
    project: str
    region: str

class GetRegionTargetHttpProxyRequest(proto.Message):
    project: str
    region: str
    target_http_proxy: str

class GetRegionTargetHttpsProxyRequest(proto.Message):
    project: str
    region: str
    target_https_proxy: str

class GetRegionUrlMapRequest(proto.Message):
    project: str
    region: str
    url_map: str

class GetReservationRequest(proto.Message):
    project: str
    reservation: str
    zone: str

class GetResourcePolicyRequest(proto.Message):
    project: str
    region: str
    resource_policy: str

class GetRouterRequest(proto.Message):
    project: str
    region: str
    router: str

class GetSubnetworkRequest(proto.Message):
    project: str
    region: str
    subnetwork: str
    views: str

class GetTargetHttpProxyRequest(proto.Message):
    project: str
    target_http_proxy: str

class GetTargetHttpsProxyRequest(proto.Message):
    project: str
    target_https_proxy: str

class GetTargetPoolRequest(proto.Message):
    project: str
    region: str
    target_pool: str

class GetUrlMapRequest(proto.Message):
    project: str
    url_map: str

class GetVersionOperationMetadata(proto.Message):
    inline_sbom_info: GetVersionOperationMetadataSbomInfo

class GetVersionOperationMetadataSbomInfo(proto.Message):
    current_component_versions: MutableMapping[str, str]
    target_component_versions: MutableMapping[str, str]

class GetZoneOperationRequest(proto.Message):
    operation: str
    project: str
    zone: str

class GetZoneRequest(proto.Message):
    project: str
    zone: str

class GroupMaintenanceInfo(proto.Message):
    instance_maintenance_ongoing_count: int
    instance_maintenance_pending_count: int
    maintenance_ongoing_count: int
    maintenance_pending_count: int
    scheduling_type: str
    subblock_infra_maintenance_ongoing_count: int
    subblock_infra_maintenance_pending_count: int
    upcoming_group_maintenance: UpcomingMaintenance

class GuestOsFeature(proto.Message):
    type_: str

class HTTP2HealthCheck(proto.Message):
    host: str
    port: int
    port_name: str
    port_specification: str
    proxy_header: str
    request_path: str
    response: str

class HTTPHealthCheck(proto.Message):
    host: str
    port: int
    port_name: str
    port_specification: str
    proxy_header: str
    request_path: str
    response: str

class HTTPSHealthCheck(proto.Message):
    host: str
    port: int
    port_name: str
    port_specification: str
    proxy_header: str
    request_path: str
    response: str

class HealthCheck(proto.Message):
    check_interval_sec: int
    creation_timestamp: str
    description: str
    grpc_health_check: GRPCHealthCheck
    grpc_tls_health_check: GRPCTLSHealthCheck
    healthy_threshold: int
    http2_health_check: HTTP2HealthCheck
    http_health_check: HTTPHealthCheck
    https_health_check: HTTPSHealthCheck
    id: int
    kind: str
    log_config: HealthCheckLogConfig
    name: str
    region: str
    self_link: str
    source_regions: MutableSequence[str]
    ssl_health_check: SSLHealthCheck
    tcp_health_check: TCPHealthCheck
    timeout_sec: int
    type_: str
    unhealthy_threshold: int

class HealthCheckLogConfig(proto.Message):
    enable: bool

class HealthChecksScopedList(proto.Message):
    health_checks: MutableSequence[HealthCheck]
    warning: Warning

class Help(proto.Message):
    links: MutableSequence[HelpLink]

class HelpLink(proto.Message):
    description: str
    url: str

class HostRule(proto.Message):
    description: str
    hosts: MutableSequence[str]
    path_matcher: str

class HttpFaultAbort(proto.Message):
    http_status: int
    percentage: float

class HttpFaultDelay(proto.Message):
    fixed_delay: Duration
    percentage: float

class HttpFaultInjection(proto.Message):
    abort: HttpFaultAbort
    delay: HttpFaultDelay

class HttpHeaderAction(proto.Message):
    request_headers_to_add: MutableSequence[HttpHeaderOption]
    request_headers_to_remove: MutableSequence[str]
    response_headers_to_add: MutableSequence[HttpHeaderOption]
    response_headers_to_remove: MutableSequence[str]

class HttpHeaderMatch(proto.Message):
    exact_match: str
    header_name: str
    invert_match: bool
    prefix_match: str
    present_match: bool
    range_match: Int64RangeMatch
    regex_match: str
    suffix_match: str

class HttpHeaderOption(proto.Message):
    header_name: str
    header_value: str
    replace: bool

class HttpQueryParameterMatch(proto.Message):
    exact_match: str
    name: str
    present_match: bool
    regex_match: str

class HttpRedirectAction(proto.Message):
    host_redirect: str
    https_redirect: bool
    path_redirect: str
    prefix_redirect: str
    redirect_response_code: str
    strip_query: bool

class HttpRetryPolicy(proto.Message):
    num_retries: int
    per_try_timeout: Duration
    retry_conditions: MutableSequence[str]

class HttpRouteAction(proto.Message):
    cache_policy: CachePolicy
    cors_policy: CorsPolicy
    fault_injection_policy: HttpFaultInjection
    max_stream_duration: Duration
    request_mirror_policy: RequestMirrorPolicy
    retry_policy: HttpRetryPolicy
    timeout: Duration
    url_rewrite: UrlRewrite
    weighted_backend_services: MutableSequence[WeightedBackendService]

class HttpRouteRule(proto.Message):
    custom_error_response_policy: CustomErrorResponsePolicy
    description: str
    header_action: HttpHeaderAction
    match_rules: MutableSequence[HttpRouteRuleMatch]
    priority: int
    route_action: HttpRouteAction
    service: str
    url_redirect: HttpRedirectAction

class HttpRouteRuleMatch(proto.Message):
    full_path_match: str
    header_matches: MutableSequence[HttpHeaderMatch]
    ignore_case: bool
    metadata_filters: MutableSequence[MetadataFilter]
    path_template_match: str
    prefix_match: str
    query_parameter_matches: MutableSequence[HttpQueryParameterMatch]
    regex_match: str

class Image(proto.Message):
    architecture: str
    archive_size_bytes: int
    creation_timestamp: str
    deprecated: DeprecationStatus
    description: str
    disk_size_gb: int
    enable_confidential_compute: bool
    family: str
    guest_os_features: MutableSequence[GuestOsFeature]
    id: int
    image_encryption_key: CustomerEncryptionKey
    kind: str
    label_fingerprint: str
    labels: MutableMapping[str, str]
    license_codes: MutableSequence[int]
    licenses: MutableSequence[str]
    name: str
    params: ImageParams
    raw_disk: RawDisk
    satisfies_pzi: bool
    satisfies_pzs: bool
    self_link: str
    shielded_instance_initial_state: InitialStateConfig
    source_disk: str
    source_disk_encryption_key: CustomerEncryptionKey
    source_disk_id: str
    source_image: str
    source_image_encryption_key: CustomerEncryptionKey
    source_image_id: str
    source_snapshot: str
    source_snapshot_encryption_key: CustomerEncryptionKey
    source_snapshot_id: str
    source_type: str
    status: str
    storage_locations: MutableSequence[str]

class ImageParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class InitialStateConfig(proto.Message):
    dbs: MutableSequence[FileContentBuffer]
    dbxs: MutableSequence[FileContentBuffer]
    keks: MutableSequence[FileContentBuffer]
    pk: FileContentBuffer

class InsertAddressRequest(proto.Message):
    address_resource: Address
    project: str
    region: str
    request_id: str

class InsertBackendServiceRequest(proto.Message):
    backend_service_resource: BackendService
    project: str
    request_id: str

class InsertDiskRequest(proto.Message):
    disk_resource: Disk
    project: str
    request_id: str
    source_image: str
    zone: str

class InsertFirewallRequest(proto.Message):
    firewall_resource: Firewall
    project: str
    request_id: str

class InsertForwardingRuleRequest(proto.Message):
    forwarding_rule_resource: ForwardingRule
    project: str
    region: str
    request_id: str

class InsertFutureReservationRequest(proto.Message):
    future_reservation_resource: FutureReservation
    project: str
    request_id: str
    zone: str

class InsertGlobalAddressRequest(proto.Message):
    address_resource: Address
    project: str
    request_id: str

class InsertGlobalForwardingRuleRequest(proto.Message):
    forwarding_rule_resource: ForwardingRule
    project: str
    request_id: str

class InsertGlobalNetworkEndpointGroupRequest(proto.Message):
    network_endpoint_group_resource: NetworkEndpointGroup
    project: str
    request_id: str

class InsertHealthCheckRequest(proto.Message):
    health_check_resource: HealthCheck
    project: str
    request_id: str

class InsertInstanceGroupManagerRequest(proto.Message):
    instance_group_manager_resource: InstanceGroupManager
    project: str
    request_id: str
    zone: str

class InsertInstanceGroupRequest(proto.Message):
    instance_group_resource: InstanceGroup
    project: str
    request_id: str
    zone: str

class InsertNetworkEndpointGroupRequest(proto.Message):
    network_endpoint_group_resource: NetworkEndpointGroup
    project: str
    request_id: str
    zone: str

class InsertNetworkRequest(proto.Message):
    network_resource: Network
    project: str
    request_id: str

class InsertRegionBackendServiceRequest(proto.Message):
    backend_service_resource: BackendService
    project: str
    region: str
    request_id: str

class InsertRegionDiskRequest(proto.Message):
    disk_resource: Disk
    project: str
    region: str
    request_id: str
    source_image: str

class InsertRegionHealthCheckRequest(proto.Message):
    health_check_resource: HealthCheck
    project: str
    region: str
    request_id: str

class InsertRegionTargetHttpProxyRequest(proto.Message):
    project: str
    region: str
    request_id: str
    target_http_proxy_resource: TargetHttpProxy

class InsertRegionTargetHttpsProxyRequest(proto.Message):
    project: str
    region: str
    request_id: str
    target_https_proxy_resource: TargetHttpsProxy

class InsertRegionUrlMapRequest(proto.Message):
    project: str
    region: str
    request_id: str
    url_map_resource: UrlMap

class InsertReservationRequest(proto.Message):
    project: str
    request_id: str
    reservation_resource: Reservation
    zone: str

class InsertResourcePolicyRequest(proto.Message):
    project: str
    region: str
    request_id: str
    resource_policy_resource: ResourcePolicy

class InsertRouterRequest(proto.Message):
    project: str
    region: str
    request_id: str
    router_resource: Router

class InsertSubnetworkRequest(proto.Message):
    project: str
    region: str
    request_id: str
    subnetwork_resource: Subnetwork

class InsertTargetHttpProxyRequest(proto.Message):
    project: str
    request_id: str
    target_http_proxy_resource: TargetHttpProxy

class InsertTargetHttpsProxyRequest(proto.Message):
    project: str
    request_id: str
    target_https_proxy_resource: TargetHttpsProxy

class InsertTargetPoolRequest(proto.Message):
    project: str
    region: str
    request_id: str
    target_pool_resource: TargetPool

class InsertUrlMapRequest(proto.Message):
    project: str
    request_id: str
    url_map_resource: UrlMap

class Instance(proto.Message):
    advanced_machine_features: AdvancedMachineFeatures
    can_ip_forward: bool
    confidential_instance_config: ConfidentialInstanceConfig
    cpu_platform: str
    creation_timestamp: str
    deletion_protection: bool
    description: str
    disks: MutableSequence[AttachedDisk]
    display_device: DisplayDevice
    fingerprint: str
    guest_accelerators: MutableSequence[AcceleratorConfig]
    hostname: str
    id: int
    instance_encryption_key: CustomerEncryptionKey
    key_revocation_action_type: str
    kind: str
    label_fingerprint: str
    labels: MutableMapping[str, str]
    last_start_timestamp: str
    last_stop_timestamp: str
    last_suspended_timestamp: str
    local_ssd_encryption_mode: str
    machine_type: str
    metadata: Metadata
    min_cpu_platform: str
    name: str
    network_interfaces: MutableSequence[NetworkInterface]
    network_performance_config: NetworkPerformanceConfig
    params: InstanceParams
    private_ipv6_google_access: str
    reservation_affinity: ReservationAffinity
    resource_policies: MutableSequence[str]
    resource_status: ResourceStatus
    satisfies_pzi: bool
    satisfies_pzs: bool
    scheduling: Scheduling
    self_link: str
    service_accounts: MutableSequence[ServiceAccount]
    shielded_instance_config: ShieldedInstanceConfig
    shielded_instance_integrity_policy: ShieldedInstanceIntegrityPolicy
    source_machine_image: str
    source_machine_image_encryption_key: CustomerEncryptionKey
    start_restricted: bool
    status: str
    status_message: str
    tags: Tags
    workload_identity_config: WorkloadIdentityConfig
    zone: str

class InstanceGroup(proto.Message):
    creation_timestamp: str
    description: str
    fingerprint: str
    id: int
    kind: str
    name: str
    named_ports: MutableSequence[NamedPort]
    network: str
    region: str
    self_link: str
    size: int
    subnetwork: str
    zone: str

class InstanceGroupManager(proto.Message):
    all_instances_config: InstanceGroupManagerAllInstancesConfig
    auto_healing_policies: MutableSequence[InstanceGroupManagerAutoHealingPolicy]
    base_instance_name: str
    creation_timestamp: str
    current_actions: InstanceGroupManagerActionsSummary
    description: str
    distribution_policy: DistributionPolicy
    fingerprint: str
    id: int
    instance_flexibility_policy: InstanceGroupManagerInstanceFlexibilityPolicy
    instance_group: str
    instance_lifecycle_policy: InstanceGroupManagerInstanceLifecyclePolicy
    instance_template: str
    kind: str
    list_managed_instances_results: str
    name: str
    named_ports: MutableSequence[NamedPort]
    region: str
    resource_policies: InstanceGroupManagerResourcePolicies
    satisfies_pzi: bool
    satisfies_pzs: bool
    self_link: str
    standby_policy: InstanceGroupManagerStandbyPolicy
    stateful_policy: StatefulPolicy
    status: InstanceGroupManagerStatus
    target_pools: MutableSequence[str]
    target_size: int
    target_size_policy: InstanceGroupManagerTargetSizePolicy
    target_stopped_size: int
    target_suspended_size: int
    update_policy: InstanceGroupManagerUpdatePolicy
    versions: MutableSequence[InstanceGroupManagerVersion]
    zone: str

class InstanceGroupManagerActionsSummary(proto.Message):
    abandoning: int
    creating: int
    creating_without_retries: int
    deleting: int
    none: int
    recreating: int
    refreshing: int
    restarting: int
    resuming: int
    starting: int
    stopping: int
    suspending: int
    verifying: int

class InstanceGroupManagerAllInstancesConfig(proto.Message):
    properties: InstancePropertiesPatch

class InstanceGroupManagerAutoHealingPolicy(proto.Message):
    health_check: str
    initial_delay_sec: int

class InstanceGroupManagerInstanceFlexibilityPolicy(proto.Message):
    instance_selections: MutableMapping[str, InstanceGroupManagerInstanceFlexibilityPolicyInstanceSelection]

class InstanceGroupManagerInstanceFlexibilityPolicyInstanceSelection(proto.Message):
    disks: MutableSequence[AttachedDisk]
    machine_types: MutableSequence[str]
    min_cpu_platform: str
    rank: int

class InstanceGroupManagerInstanceLifecyclePolicy(proto.Message):
    default_action_on_failure: str
    force_update_on_repair: str
    on_failed_health_check: str
    on_repair: InstanceGroupManagerInstanceLifecyclePolicyOnRepair

class InstanceGroupManagerInstanceLifecyclePolicyOnRepair(proto.Message):
    allow_changing_zone: str

class InstanceGroupManagerResourcePolicies(proto.Message):
    workload_policy: str

class InstanceGroupManagerStandbyPolicy(proto.Message):
    initial_delay_sec: int
    mode: str

class InstanceGroupManagerStatus(proto.Message):
    all_instances_config: InstanceGroupManagerStatusAllInstancesConfig
    applied_accelerator_topologies: MutableSequence[InstanceGroupManagerStatusAcceleratorTopology]
    autoscaler: str
    bulk_instance_operation: InstanceGroupManagerStatusBulkInstanceOperation
    current_instance_statuses: InstanceGroupManagerStatusInstanceStatusSummary
    is_stable: bool
    stateful: InstanceGroupManagerStatusStateful
    version_target: InstanceGroupManagerStatusVersionTarget

class InstanceGroupManagerStatusAcceleratorTopology(proto.Message):
    accelerator_topology: str
    state: str
    state_details: InstanceGroupManagerStatusAcceleratorTopologyAcceleratorTopologyStateDetails

class InstanceGroupManagerStatusAcceleratorTopologyAcceleratorTopologyStateDetails(proto.Message):
    error: Error
    timestamp: str

class InstanceGroupManagerStatusAllInstancesConfig(proto.Message):
    current_revision: str
    effective: bool

class InstanceGroupManagerStatusBulkInstanceOperation(proto.Message):
    in_progress: bool
    last_progress_check: InstanceGroupManagerStatusBulkInstanceOperationLastProgressCheck

class InstanceGroupManagerStatusBulkInstanceOperationLastProgressCheck(proto.Message):
    error: Error
    timestamp: str

class InstanceGroupManagerStatusInstanceStatusSummary(proto.Message):
    deprovisioning: int
    non_existent: int
    pending: int
    pending_stop: int
    provisioning: int
    repairing: int
    running: int
    staging: int
    stopped: int
    stopping: int
    suspended: int
    suspending: int
    terminated: int

class InstanceGroupManagerStatusStateful(proto.Message):
    has_stateful_config: bool
    per_instance_configs: InstanceGroupManagerStatusStatefulPerInstanceConfigs

class InstanceGroupManagerStatusStatefulPerInstanceConfigs(proto.Message):
    all_effective: bool

class InstanceGroupManagerStatusVersionTarget(proto.Message):
    is_reached: bool

class InstanceGroupManagerTargetSizePolicy(proto.Message):
    mode: str

class InstanceGroupManagerUpdatePolicy(proto.Message):
    instance_redistribution_type: str
    max_surge: FixedOrPercent
    max_unavailable: FixedOrPercent
    minimal_action: str
    most_disruptive_allowed_action: str
    replacement_method: str
    type_: str

class InstanceGroupManagerVersion(proto.Message):
    instance_template: str
    name: str
    target_size: FixedOrPercent

class InstanceGroupManagersScopedList(proto.Message):
    instance_group_managers: MutableSequence[InstanceGroupManager]
    warning: Warning

class InstanceGroupsScopedList(proto.Message):
    instance_groups: MutableSequence[InstanceGroup]
    warning: Warning

class InstanceManagedByIgmError(proto.Message):
    error: InstanceManagedByIgmErrorManagedInstanceError
    instance_action_details: InstanceManagedByIgmErrorInstanceActionDetails
    timestamp: str

class InstanceManagedByIgmErrorInstanceActionDetails(proto.Message):
    action: str
    instance: str
    version: ManagedInstanceVersion

class InstanceManagedByIgmErrorManagedInstanceError(proto.Message):
    code: str
    message: str

class InstanceParams(proto.Message):
    request_valid_for_duration: Duration
    resource_manager_tags: MutableMapping[str, str]

class InstanceProperties(proto.Message):
    advanced_machine_features: AdvancedMachineFeatures
    can_ip_forward: bool
    confidential_instance_config: ConfidentialInstanceConfig
    description: str
    disks: MutableSequence[AttachedDisk]
    guest_accelerators: MutableSequence[AcceleratorConfig]
    key_revocation_action_type: str
    labels: MutableMapping[str, str]
    local_ssd_encryption_mode: str
    machine_type: str
    metadata: Metadata
    min_cpu_platform: str
    network_interfaces: MutableSequence[NetworkInterface]
    network_performance_config: NetworkPerformanceConfig
    private_ipv6_google_access: str
    reservation_affinity: ReservationAffinity
    resource_manager_tags: MutableMapping[str, str]
    resource_policies: MutableSequence[str]
    scheduling: Scheduling
    service_accounts: MutableSequence[ServiceAccount]
    shielded_instance_config: ShieldedInstanceConfig
    tags: Tags
    workload_identity_config: WorkloadIdentityConfig

class InstancePropertiesPatch(proto.Message):
    expose_host_topology: bool
    labels: MutableMapping[str, str]
    metadata: MutableMapping[str, str]

class InstanceTemplate(proto.Message):
    creation_timestamp: str
    description: str
    id: int
    kind: str
    name: str
    properties: InstanceProperties
    region: str
    self_link: str
    source_instance: str
    source_instance_params: SourceInstanceParams

class InstancesBulkInsertOperationMetadata(proto.Message):
    per_location_status: MutableMapping[str, BulkInsertOperationStatus]

class Int64RangeMatch(proto.Message):
    range_end: int
    range_start: int

class Items(proto.Message):
    key: str
    value: str

class ListAddressesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    region: str

class ListBackendServicesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class ListDisksRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    zone: str

class ListErrorsInstanceGroupManagersRequest(proto.Message):
    filter: str
    instance_group_manager: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    zone: str

class ListFirewallsRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class ListForwardingRulesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    region: str

class ListFutureReservationsRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    zone: str

class ListGlobalAddressesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class ListGlobalForwardingRulesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class ListGlobalNetworkEndpointGroupsRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class ListGlobalOperationsRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class ListHealthChecksRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class ListInstanceGroupManagersRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    zone: str

class ListInstanceGroupsRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    zone: str

class ListMachineTypesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    zone: str

class ListNetworkEndpointGroupsRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    zone: str

class ListNetworkProfilesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class ListNetworksRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class ListRegionBackendServicesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    region: str

class ListRegionDisksRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    region: str

class ListRegionHealthChecksRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    region: str

class ListRegionOperationsRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    region: str

class ListRegionTargetHttpProxiesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    region: str

class ListRegionTargetHttpsProxiesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    region: str

class ListRegionUrlMapsRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    region: str

class ListRegionsRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class ListReservationsRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    zone: str

class ListResourcePoliciesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    region: str

class ListRoutersRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    region: str

class ListSubnetworksRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    region: str
    views: str

class ListTargetHttpProxiesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class ListTargetHttpsProxiesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class ListTargetPoolsRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    region: str

class ListUrlMapsRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class ListZoneOperationsRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str
    zone: str

class ListZonesRequest(proto.Message):
    filter: str
    max_results: int
    order_by: str
    page_token: str
    project: str

class LocalizedMessage(proto.Message):
    locale: str
    message: str

class MachineImage(proto.Message):
    creation_timestamp: str
    description: str
    guest_flush: bool
    id: int
    instance_properties: InstanceProperties
    kind: str
    label_fingerprint: str
    labels: MutableMapping[str, str]
    machine_image_encryption_key: CustomerEncryptionKey
    name: str
    params: MachineImageParams
    satisfies_pzi: bool
    satisfies_pzs: bool
    saved_disks: MutableSequence[SavedDisk]
    self_link: str
    source_disk_encryption_keys: MutableSequence[SourceDiskEncryptionKey]
    source_instance: str
    source_instance_properties: SourceInstanceProperties
    status: str
    storage_locations: MutableSequence[str]
    total_storage_bytes: int

class MachineImageParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class MachineType(proto.Message):
    accelerators: MutableSequence[Accelerators]
    architecture: str
    bundled_local_ssds: BundledLocalSsds
    creation_timestamp: str
    deprecated: DeprecationStatus
    description: str
    guest_cpus: int
    id: int
    image_space_gb: int
    is_shared_cpu: bool
    kind: str
    maximum_persistent_disks: int
    maximum_persistent_disks_size_gb: int
    memory_mb: int
    name: str
    self_link: str
    zone: str

class MachineTypesScopedList(proto.Message):
    machine_types: MutableSequence[MachineType]
    warning: Warning

class ManagedInstanceVersion(proto.Message):
    instance_template: str
    name: str

class Metadata(proto.Message):
    fingerprint: str
    items: MutableSequence[Items]
    kind: str

class MetadataFilter(proto.Message):
    filter_labels: MutableSequence[MetadataFilterLabelMatch]
    filter_match_criteria: str

class MetadataFilterLabelMatch(proto.Message):
    name: str
    value: str

class NamedPort(proto.Message):
    name: str
    port: int

class Network(proto.Message):
    I_pv4_range: str
    auto_create_subnetworks: bool
    creation_timestamp: str
    description: str
    enable_ula_internal_ipv6: bool
    firewall_policy: str
    gateway_i_pv4: str
    id: int
    internal_ipv6_range: str
    kind: str
    mtu: int
    name: str
    network_firewall_policy_enforcement_order: str
    network_profile: str
    params: NetworkParams
    peerings: MutableSequence[NetworkPeering]
    routing_config: NetworkRoutingConfig
    self_link: str
    self_link_with_id: str
    subnetworks: MutableSequence[str]

class NetworkEndpointGroup(proto.Message):
    annotations: MutableMapping[str, str]
    app_engine: NetworkEndpointGroupAppEngine
    cloud_function: NetworkEndpointGroupCloudFunction
    cloud_run: NetworkEndpointGroupCloudRun
    creation_timestamp: str
    default_port: int
    description: str
    id: int
    kind: str
    name: str
    network: str
    network_endpoint_type: str
    psc_data: NetworkEndpointGroupPscData
    psc_target_service: str
    region: str
    self_link: str
    size: int
    subnetwork: str
    zone: str

class NetworkEndpointGroupAppEngine(proto.Message):
    service: str
    url_mask: str
    version: str

class NetworkEndpointGroupCloudFunction(proto.Message):
    function: str
    url_mask: str

class NetworkEndpointGroupCloudRun(proto.Message):
    service: str
    tag: str
    url_mask: str

class NetworkEndpointGroupPscData(proto.Message):
    consumer_psc_address: str
    producer_port: int
    psc_connection_id: int
    psc_connection_status: str

class NetworkEndpointGroupsScopedList(proto.Message):
    network_endpoint_groups: MutableSequence[NetworkEndpointGroup]
    warning: Warning

class NetworkInterface(proto.Message):
    access_configs: MutableSequence[AccessConfig]
    alias_ip_ranges: MutableSequence[AliasIpRange]
    alias_ipv6_ranges: MutableSequence[AliasIpRange]
    enable_vpc_scoped_dns: bool
    fingerprint: str
    igmp_query: str
    internal_ipv6_prefix_length: int
    ipv6_access_configs: MutableSequence[AccessConfig]
    ipv6_access_type: str
    ipv6_address: str
    kind: str
    name: str
    network: str
    network_attachment: str
    network_i_p: str
    nic_type: str
    parent_nic_name: str
    queue_count: int
    service_class_id: str
    stack_type: str
    subnetwork: str
    vlan: int

class NetworkParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class NetworkPeering(proto.Message):
    auto_create_routes: bool
    connection_status: NetworkPeeringConnectionStatus
    exchange_subnet_routes: bool
    export_custom_routes: bool
    export_subnet_routes_with_public_ip: bool
    import_custom_routes: bool
    import_subnet_routes_with_public_ip: bool
    name: str
    network: str
    peer_mtu: int
    stack_type: str
    state: str
    state_details: str
    update_strategy: str

class NetworkPeeringConnectionStatus(proto.Message):
    consensus_state: NetworkPeeringConnectionStatusConsensusState
    traffic_configuration: NetworkPeeringConnectionStatusTrafficConfiguration
    update_strategy: str

class NetworkPeeringConnectionStatusConsensusState(proto.Message):
    delete_status: str
    update_status: str

class NetworkPeeringConnectionStatusTrafficConfiguration(proto.Message):
    export_custom_routes_to_peer: bool
    export_subnet_routes_with_public_ip_to_peer: bool
    import_custom_routes_from_peer: bool
    import_subnet_routes_with_public_ip_from_peer: bool
    stack_type: str

class NetworkPerformanceConfig(proto.Message):
    total_egress_bandwidth_tier: str

class NetworkProfile(proto.Message):
    creation_timestamp: str
    description: str
    features: NetworkProfileNetworkFeatures
    id: int
    kind: str
    location: NetworkProfileLocation
    name: str
    profile_type: NetworkProfileProfileType
    self_link: str
    self_link_with_id: str

class NetworkProfileLocation(proto.Message):
    name: str
    scope: str

class NetworkProfileNetworkFeatures(proto.Message):
    address_purposes: MutableSequence[str]
    allow_address_creation: str
    allow_alias_ip_ranges: str
    allow_auto_mode_subnet: str
    allow_class_d_firewalls: str
    allow_cloud_nat: str
    allow_cloud_router: str
    allow_default_nic_attachment: str
    allow_external_ip_access: str
    allow_firewall_policy: str
    allow_interconnect: str
    allow_ip_forwarding: str
    allow_load_balancing: str
    allow_multi_nic_in_same_network: str
    allow_multi_nic_in_same_subnetwork: str
    allow_multicast: str
    allow_ncc: str
    allow_network_migration: str
    allow_packet_mirroring: str
    allow_private_google_access: str
    allow_psc: str
    allow_same_network_unicast: str
    allow_static_routes: str
    allow_sub_interfaces: str
    allow_subnetwork_creation: str
    allow_vpc_firewall_rules: str
    allow_vpc_peering: str
    allow_vpn: str
    firewall_policy_types: MutableSequence[str]
    interface_types: MutableSequence[str]
    multicast: str
    predefined_network_internal_ipv6_range: str
    predefined_subnetwork_ranges: MutableSequence[NetworkProfileNetworkFeaturesPredefinedSubnetworkRange]
    subnet_purposes: MutableSequence[str]
    subnet_stack_types: MutableSequence[str]
    subnetwork_purposes: MutableSequence[str]
    subnetwork_stack_types: MutableSequence[str]
    unicast: str

class NetworkProfileNetworkFeaturesPredefinedSubnetworkRange(proto.Message):
    ipv6_range: str
    name_prefix: str

class NetworkProfileProfileType(proto.Message):
    network_type: str
    rdma_subtype: str
    ull_subtype: str
    vpc_subtype: str

class NetworkRoutingConfig(proto.Message):
    bgp_always_compare_med: bool
    bgp_best_path_selection_mode: str
    bgp_inter_region_cost: str
    effective_bgp_always_compare_med: bool
    effective_bgp_inter_region_cost: str
    routing_mode: str

class NetworksRemovePeeringRequest(proto.Message):
    name: str

class Operation(proto.Message):
    class Status(proto.Enum):
        UNDEFINED_STATUS = 0
        DONE = 2104194
        PENDING = 35394935
        RUNNING = 121282975

    client_operation_id: str
    creation_timestamp: str
    description: str
    end_time: str
    error: Error
    get_health_operation_metadata: GetHealthOperationMetadata
    get_version_operation_metadata: GetVersionOperationMetadata
    http_error_message: str
    http_error_status_code: int
    id: int
    insert_time: str
    instances_bulk_insert_operation_metadata: InstancesBulkInsertOperationMetadata
    kind: str
    name: str
    operation_group_id: str
    operation_type: str
    progress: int
    region: str
    self_link: str
    set_common_instance_metadata_operation_metadata: SetCommonInstanceMetadataOperationMetadata
    start_time: str
    status: Status
    status_message: str
    target_id: int
    target_link: str
    user: str
    warnings: MutableSequence[Warnings]
    zone: str

class OperationsScopedList(proto.Message):
    operations: MutableSequence[Operation]
    warning: Warning

class OutlierDetection(proto.Message):
    base_ejection_time: Duration
    consecutive_errors: int
    consecutive_gateway_failure: int
    enforcing_consecutive_errors: int
    enforcing_consecutive_gateway_failure: int
    enforcing_success_rate: int
    interval: Duration
    max_ejection_percent: int
    success_rate_minimum_hosts: int
    success_rate_request_volume: int
    success_rate_stdev_factor: int

class PatchBackendServiceRequest(proto.Message):
    backend_service: str
    backend_service_resource: BackendService
    project: str
    request_id: str

class PatchFirewallRequest(proto.Message):
    firewall: str
    firewall_resource: Firewall
    project: str
    request_id: str

class PatchForwardingRuleRequest(proto.Message):
    forwarding_rule: str
    forwarding_rule_resource: ForwardingRule
    project: str
    region: str
    request_id: str

class PatchGlobalForwardingRuleRequest(proto.Message):
    forwarding_rule: str
    forwarding_rule_resource: ForwardingRule
    project: str
    request_id: str

class PatchHealthCheckRequest(proto.Message):
    health_check: str
    health_check_resource: HealthCheck
    project: str
    request_id: str

class PatchInstanceGroupManagerRequest(proto.Message):
    instance_group_manager: str
    instance_group_manager_resource: InstanceGroupManager
    project: str
    request_id: str
    zone: str

class PatchNetworkRequest(proto.Message):
    network: str
    network_resource: Network
    project: str
    request_id: str

class PatchRegionBackendServiceRequest(proto.Message):
    backend_service: str
    backend_service_resource: BackendService
    project: str
    region: str
    request_id: str

class PatchRegionHealthCheckRequest(proto.Message):
    health_check: str
    health_check_resource: HealthCheck
    project: str
    region: str
    request_id: str

class PatchRegionTargetHttpsProxyRequest(proto.Message):
    project: str
    region: str
    request_id: str
    target_https_proxy: str
    target_https_proxy_resource: TargetHttpsProxy

class PatchRegionUrlMapRequest(proto.Message):
    project: str
    region: str
    request_id: str
    url_map: str
    url_map_resource: UrlMap

class PatchResourcePolicyRequest(proto.Message):
    project: str
    region: str
    request_id: str
    resource_policy: str
    resource_policy_resource: ResourcePolicy
    update_mask: str

class PatchRouterRequest(proto.Message):
    project: str
    region: str
    request_id: str
    router: str
    router_resource: Router

class PatchSubnetworkRequest(proto.Message):
    drain_timeout_seconds: int
    project: str
    region: str
    request_id: str
    subnetwork: str
    subnetwork_resource: Subnetwork

class PatchTargetHttpProxyRequest(proto.Message):
    project: str
    request_id: str
    target_http_proxy: str
    target_http_proxy_resource: TargetHttpProxy

class PatchTargetHttpsProxyRequest(proto.Message):
    project: str
    request_id: str
    target_https_proxy: str
    target_https_proxy_resource: TargetHttpsProxy

class PatchUrlMapRequest(proto.Message):
    project: str
    request_id: str
    url_map: str
    url_map_resource: UrlMap

class PathMatcher(proto.Message):
    default_custom_error_response_policy: CustomErrorResponsePolicy
    default_route_action: HttpRouteAction
    default_service: str
    default_url_redirect: HttpRedirectAction
    description: str
    header_action: HttpHeaderAction
    name: str
    path_rules: MutableSequence[PathRule]
    route_rules: MutableSequence[HttpRouteRule]

class PathRule(proto.Message):
    custom_error_response_policy: CustomErrorResponsePolicy
    paths: MutableSequence[str]
    route_action: HttpRouteAction
    service: str
    url_redirect: HttpRedirectAction

class PeriodicPartialMaintenanceSchedule(proto.Message):
    sub_type: str
    target_resource: str
    type_: str
    window_end_time: DateTime
    window_start_time: DateTime

class Project(proto.Message):
    cloud_armor_tier: str
    common_instance_metadata: Metadata
    creation_timestamp: str
    default_network_tier: str
    default_service_account: str
    description: str
    enabled_features: MutableSequence[str]
    id: int
    kind: str
    name: str
    quotas: MutableSequence[Quota]
    self_link: str
    usage_export_location: UsageExportLocation
    vm_dns_setting: str
    xpn_project_status: str

class Quota(proto.Message):
    limit: float
    metric: str
    owner: str
    usage: float

class QuotaExceededInfo(proto.Message):
    dimensions: MutableMapping[str, str]
    future_limit: float
    limit: float
    limit_name: str
    metric_name: str
    rollout_status: str

class QuotaStatusWarning(proto.Message):
    code: str
    data: MutableSequence[Data]
    message: str

class RawDisk(proto.Message):
    container_type: str
    sha1_checksum: str
    source: str

class RegexRewrite(proto.Message):
    path_pattern: str
    path_substitution: str

class Region(proto.Message):
    creation_timestamp: str
    deprecated: DeprecationStatus
    description: str
    id: int
    kind: str
    name: str
    quota_status_warning: QuotaStatusWarning
    quotas: MutableSequence[Quota]
    self_link: str
    status: str
    supports_pzs: bool
    zones: MutableSequence[str]

class RequestMirrorPolicy(proto.Message):
    backend_service: str
    mirror_percent: float

class Reservation(proto.Message):
    advanced_deployment_control: ReservationAdvancedDeploymentControl
    aggregate_reservation: AllocationAggregateReservation
    commitment: str
    confidential_compute_type: str
    creation_timestamp: str
    delete_after_duration: Duration
    delete_at_time: str
    deployment_type: str
    description: str
    early_access_maintenance: str
    enable_emergent_maintenance: bool
    id: int
    kind: str
    linked_commitments: MutableSequence[str]
    name: str
    params: ReservationParams
    protection_tier: str
    reservation_sharing_policy: AllocationReservationSharingPolicy
    resource_metadata: ResourceMetadata
    resource_policies: MutableMapping[str, str]
    resource_status: AllocationResourceStatus
    satisfies_pzs: bool
    scheduling_type: str
    self_link: str
    share_settings: ShareSettings
    specific_reservation: AllocationSpecificSKUReservation
    specific_reservation_required: bool
    status: str
    zone: str

class ReservationAdvancedDeploymentControl(proto.Message):
    reservation_operational_mode: str

class ReservationAffinity(proto.Message):
    consume_reservation_type: str
    key: str
    values: MutableSequence[str]

class ReservationParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class ReservationsScopedList(proto.Message):
    reservations: MutableSequence[Reservation]
    warning: Warning

class ResourceMetadata(proto.Message):
    api_version: str
    resource_type: str

class ResourcePoliciesScopedList(proto.Message):
    resource_policies: MutableSequence[ResourcePolicy]
    warning: Warning

class ResourcePolicy(proto.Message):
    creation_timestamp: str
    description: str
    disk_consistency_group_policy: ResourcePolicyDiskConsistencyGroupPolicy
    group_placement_policy: ResourcePolicyGroupPlacementPolicy
    id: int
    instance_schedule_policy: ResourcePolicyInstanceSchedulePolicy
    kind: str
    name: str
    region: str
    resource_status: ResourcePolicyResourceStatus
    self_link: str
    snapshot_schedule_policy: ResourcePolicySnapshotSchedulePolicy
    status: str
    workload_policy: ResourcePolicyWorkloadPolicy

class ResourcePolicyDailyCycle(proto.Message):
    days_in_cycle: int
    duration: str
    start_time: str

class ResourcePolicyDiskConsistencyGroupPolicy(proto.Message): ...

class ResourcePolicyGroupPlacementPolicy(proto.Message):
    accelerator_topology_mode: str
    availability_domain_count: int
    collocation: str
    gpu_topology: str
    vm_count: int

class ResourcePolicyHourlyCycle(proto.Message):
    duration: str
    hours_in_cycle: int
    start_time: str

class ResourcePolicyInstanceSchedulePolicy(proto.Message):
    expiration_time: str
    start_time: str
    time_zone: str
    vm_start_schedule: ResourcePolicyInstanceSchedulePolicySchedule
    vm_stop_schedule: ResourcePolicyInstanceSchedulePolicySchedule

class ResourcePolicyInstanceSchedulePolicySchedule(proto.Message):
    schedule: str

class ResourcePolicyResourceStatus(proto.Message):
    instance_schedule_policy: ResourcePolicyResourceStatusInstanceSchedulePolicyStatus

class ResourcePolicyResourceStatusInstanceSchedulePolicyStatus(proto.Message):
    last_run_start_time: str
    next_run_start_time: str

class ResourcePolicySnapshotSchedulePolicy(proto.Message):
    retention_policy: ResourcePolicySnapshotSchedulePolicyRetentionPolicy
    schedule: ResourcePolicySnapshotSchedulePolicySchedule
    snapshot_properties: ResourcePolicySnapshotSchedulePolicySnapshotProperties

class ResourcePolicySnapshotSchedulePolicyRetentionPolicy(proto.Message):
    max_retention_days: int
    on_source_disk_delete: str

class ResourcePolicySnapshotSchedulePolicySchedule(proto.Message):
    daily_schedule: ResourcePolicyDailyCycle
    hourly_schedule: ResourcePolicyHourlyCycle
    weekly_schedule: ResourcePolicyWeeklyCycle

class ResourcePolicySnapshotSchedulePolicySnapshotProperties(proto.Message):
    chain_name: str
    guest_flush: bool
    labels: MutableMapping[str, str]
    storage_locations: MutableSequence[str]

class ResourcePolicyWeeklyCycle(proto.Message):
    day_of_weeks: MutableSequence[ResourcePolicyWeeklyCycleDayOfWeek]

class ResourcePolicyWeeklyCycleDayOfWeek(proto.Message):
    day: str
    duration: str
    start_time: str

class ResourcePolicyWorkloadPolicy(proto.Message):
    accelerator_topology: str
    accelerator_topology_mode: str
    max_topology_distance: str
    type_: str

class ResourceStatus(proto.Message):
    effective_instance_metadata: ResourceStatusEffectiveInstanceMetadata
    physical_host: str
    physical_host_topology: ResourceStatusPhysicalHostTopology
    reservation_consumption_info: ResourceStatusReservationConsumptionInfo
    scheduling: ResourceStatusScheduling
    shutdown_details: ResourceStatusShutdownDetails
    upcoming_maintenance: UpcomingMaintenance

class ResourceStatusEffectiveInstanceMetadata(proto.Message):
    block_project_ssh_keys_metadata_value: bool
    enable_guest_attributes_metadata_value: bool
    enable_os_inventory_metadata_value: bool
    enable_osconfig_metadata_value: bool
    enable_oslogin_metadata_value: bool
    gce_container_declaration_metadata_value: bool
    serial_port_enable_metadata_value: bool
    serial_port_logging_enable_metadata_value: bool
    vm_dns_setting_metadata_value: str

class ResourceStatusPhysicalHostTopology(proto.Message):
    additional_attributes: ResourceStatusPhysicalHostTopologyAdditionalAttributes
    block: str
    cluster: str
    host: str
    subblock: str

class ResourceStatusPhysicalHostTopologyAdditionalAttributes(proto.Message):
    accelerator_topology_ids: MutableMapping[str, str]

class ResourceStatusReservationConsumptionInfo(proto.Message):
    consumed_reservation: str
    consumed_reservation_block: str
    consumed_reservation_sub_block: str

class ResourceStatusScheduling(proto.Message):
    availability_domain: int
    graceful_shutdown_timestamp: str
    termination_timestamp: str

class ResourceStatusShutdownDetails(proto.Message):
    max_duration: Duration
    request_timestamp: str
    stop_state: str
    target_state: str

class Router(proto.Message):
    bgp: RouterBgp
    bgp_peers: MutableSequence[RouterBgpPeer]
    creation_timestamp: str
    description: str
    encrypted_interconnect_router: bool
    id: int
    interfaces: MutableSequence[RouterInterface]
    kind: str
    md5_authentication_keys: MutableSequence[RouterMd5AuthenticationKey]
    name: str
    nats: MutableSequence[RouterNat]
    ncc_gateway: str
    network: str
    params: RouterParams
    region: str
    self_link: str

class RouterAdvertisedIpRange(proto.Message):
    description: str
    range_: str

class RouterBgp(proto.Message):
    advertise_mode: str
    advertised_groups: MutableSequence[str]
    advertised_ip_ranges: MutableSequence[RouterAdvertisedIpRange]
    asn: int
    identifier_range: str
    keepalive_interval: int

class RouterBgpPeer(proto.Message):
    advertise_mode: str
    advertised_groups: MutableSequence[str]
    advertised_ip_ranges: MutableSequence[RouterAdvertisedIpRange]
    advertised_route_priority: int
    bfd: RouterBgpPeerBfd
    custom_learned_ip_ranges: MutableSequence[RouterBgpPeerCustomLearnedIpRange]
    custom_learned_route_priority: int
    enable: str
    enable_ipv4: bool
    enable_ipv6: bool
    export_policies: MutableSequence[str]
    import_policies: MutableSequence[str]
    interface_name: str
    ip_address: str
    ipv4_nexthop_address: str
    ipv6_nexthop_address: str
    management_type: str
    md5_authentication_key_name: str
    name: str
    peer_asn: int
    peer_ip_address: str
    peer_ipv4_nexthop_address: str
    peer_ipv6_nexthop_address: str
    router_appliance_instance: str

class RouterBgpPeerBfd(proto.Message):
    min_receive_interval: int
    min_transmit_interval: int
    multiplier: int
    session_initialization_mode: str

class RouterBgpPeerCustomLearnedIpRange(proto.Message):
    range_: str

class RouterInterface(proto.Message):
    ip_range: str
    ip_version: str
    linked_interconnect_attachment: str
    linked_vpn_tunnel: str
    management_type: str
    name: str
    private_ip_address: str
    redundant_interface: str
    subnetwork: str

class RouterMd5AuthenticationKey(proto.Message):
    key: str
    name: str

class RouterNat(proto.Message):
    auto_network_tier: str
    drain_nat_ips: MutableSequence[str]
    effective_tcp_time_wait_timeout_sec: int
    enable_dynamic_port_allocation: bool
    enable_endpoint_independent_mapping: bool
    endpoint_types: MutableSequence[str]
    icmp_idle_timeout_sec: int
    log_config: RouterNatLogConfig
    max_ports_per_vm: int
    min_ports_per_vm: int
    name: str
    nat64_subnetworks: MutableSequence[RouterNatSubnetworkToNat64]
    nat_ip_allocate_option: str
    nat_ips: MutableSequence[str]
    rules: MutableSequence[RouterNatRule]
    source_subnetwork_ip_ranges_to_nat: str
    source_subnetwork_ip_ranges_to_nat64: str
    subnetworks: MutableSequence[RouterNatSubnetworkToNat]
    tcp_established_idle_timeout_sec: int
    tcp_time_wait_timeout_sec: int
    tcp_transitory_idle_timeout_sec: int
    type_: str
    udp_idle_timeout_sec: int

class RouterNatLogConfig(proto.Message):
    enable: bool
    filter: str

class RouterNatRule(proto.Message):
    action: RouterNatRuleAction
    description: str
    match: str
    rule_number: int

class RouterNatRuleAction(proto.Message):
    source_nat_active_ips: MutableSequence[str]
    source_nat_active_ranges: MutableSequence[str]
    source_nat_drain_ips: MutableSequence[str]
    source_nat_drain_ranges: MutableSequence[str]

class RouterNatSubnetworkToNat(proto.Message):
    name: str
    secondary_ip_range_names: MutableSequence[str]
    source_ip_ranges_to_nat: MutableSequence[str]

class RouterNatSubnetworkToNat64(proto.Message):
    name: str

class RouterParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class RoutersScopedList(proto.Message):
    routers: MutableSequence[Router]
    warning: Warning

class SSLHealthCheck(proto.Message):
    port: int
    port_name: str
    port_specification: str
    proxy_header: str
    request: str
    response: str

class SavedAttachedDisk(proto.Message):
    auto_delete: bool
    boot: bool
    device_name: str
    disk_encryption_key: CustomerEncryptionKey
    disk_size_gb: int
    disk_type: str
    guest_os_features: MutableSequence[GuestOsFeature]
    index: int
    interface: str
    kind: str
    licenses: MutableSequence[str]
    mode: str
    source: str
    storage_bytes: int
    storage_bytes_status: str
    type_: str

class SavedDisk(proto.Message):
    architecture: str
    kind: str
    source_disk: str
    storage_bytes: int
    storage_bytes_status: str

class Scheduling(proto.Message):
    automatic_restart: bool
    availability_domain: int
    expose_host_topology: bool
    graceful_shutdown: SchedulingGracefulShutdown
    host_error_timeout_seconds: int
    instance_termination_action: str
    local_ssd_recovery_timeout: Duration
    location_hint: str
    max_run_duration: Duration
    min_node_cpus: int
    node_affinities: MutableSequence[SchedulingNodeAffinity]
    on_host_maintenance: str
    on_instance_stop_action: SchedulingOnInstanceStopAction
    preemptible: bool
    preemption_notice_duration: Duration
    provisioning_model: str
    skip_guest_os_shutdown: bool
    termination_time: str

class SchedulingGracefulShutdown(proto.Message):
    enabled: bool
    max_duration: Duration

class SchedulingNodeAffinity(proto.Message):
    key: str
    operator: str
    values: MutableSequence[str]

class SchedulingOnInstanceStopAction(proto.Message):
    discard_local_ssd: bool

class SecuritySettings(proto.Message):
    aws_v4_authentication: AWSV4Signature
    client_tls_policy: str
    subject_alt_names: MutableSequence[str]

class ServiceAccount(proto.Message):
    email: str
    scopes: MutableSequence[str]

class SetCommonInstanceMetadataOperationMetadata(proto.Message):
    client_operation_id: str
    per_location_operations: MutableMapping[
        str, SetCommonInstanceMetadataOperationMetadataPerLocationOperationInfo
    ]

class SetCommonInstanceMetadataOperationMetadataPerLocationOperationInfo(proto.Message):
    error: Status
    state: str

class SetPrivateIpGoogleAccessSubnetworkRequest(proto.Message):
    project: str
    region: str
    request_id: str
    subnetwork: str
    subnetworks_set_private_ip_google_access_request_resource: SubnetworksSetPrivateIpGoogleAccessRequest

class ShareSettings(proto.Message):
    project_map: MutableMapping[str, ShareSettingsProjectConfig]
    share_type: str

class ShareSettingsProjectConfig(proto.Message):
    project_id: str

class ShieldedInstanceConfig(proto.Message):
    enable_integrity_monitoring: bool
    enable_secure_boot: bool
    enable_vtpm: bool

class ShieldedInstanceIntegrityPolicy(proto.Message):
    update_auto_learn_policy: bool

class Snapshot(proto.Message):
    architecture: str
    auto_created: bool
    chain_name: str
    creation_size_bytes: int
    creation_timestamp: str
    description: str
    disk_size_gb: int
    download_bytes: int
    enable_confidential_compute: bool
    guest_flush: bool
    guest_os_features: MutableSequence[GuestOsFeature]
    id: int
    kind: str
    label_fingerprint: str
    labels: MutableMapping[str, str]
    license_codes: MutableSequence[int]
    licenses: MutableSequence[str]
    location_hint: str
    name: str
    params: SnapshotParams
    region: str
    satisfies_pzi: bool
    satisfies_pzs: bool
    self_link: str
    snapshot_encryption_key: CustomerEncryptionKey
    snapshot_group_id: str
    snapshot_group_name: str
    snapshot_type: str
    source_disk: str
    source_disk_encryption_key: CustomerEncryptionKey
    source_disk_for_recovery_checkpoint: str
    source_disk_id: str
    source_instant_snapshot: str
    source_instant_snapshot_encryption_key: CustomerEncryptionKey
    source_instant_snapshot_id: str
    source_snapshot_schedule_policy: str
    source_snapshot_schedule_policy_id: str
    status: str
    storage_bytes: int
    storage_bytes_status: str
    storage_locations: MutableSequence[str]

class SnapshotParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class SourceDiskEncryptionKey(proto.Message):
    disk_encryption_key: CustomerEncryptionKey
    source_disk: str

class SourceInstanceParams(proto.Message):
    disk_configs: MutableSequence[DiskInstantiationConfig]

class SourceInstanceProperties(proto.Message):
    can_ip_forward: bool
    deletion_protection: bool
    description: str
    disks: MutableSequence[SavedAttachedDisk]
    guest_accelerators: MutableSequence[AcceleratorConfig]
    key_revocation_action_type: str
    labels: MutableMapping[str, str]
    machine_type: str
    metadata: Metadata
    min_cpu_platform: str
    network_interfaces: MutableSequence[NetworkInterface]
    post_key_revocation_action_type: str
    scheduling: Scheduling
    service_accounts: MutableSequence[ServiceAccount]
    tags: Tags

class StatefulPolicy(proto.Message):
    preserved_state: StatefulPolicyPreservedState

class StatefulPolicyPreservedState(proto.Message):
    disks: MutableMapping[str, StatefulPolicyPreservedStateDiskDevice]
    external_i_ps: MutableMapping[str, StatefulPolicyPreservedStateNetworkIp]
    internal_i_ps: MutableMapping[str, StatefulPolicyPreservedStateNetworkIp]

class StatefulPolicyPreservedStateDiskDevice(proto.Message):
    auto_delete: str

class StatefulPolicyPreservedStateNetworkIp(proto.Message):
    auto_delete: str

class Status(proto.Message):
    code: int
    details: MutableSequence[any_pb2.Any]
    message: str

class StoragePoolExapoolProvisionedCapacityGb(proto.Message):
    capacity_optimized: int
    read_optimized: int
    write_optimized: int

class Subnetwork(proto.Message):
    allow_subnet_cidr_routes_overlap: bool
    creation_timestamp: str
    description: str
    enable_flow_logs: bool
    external_ipv6_prefix: str
    fingerprint: str
    gateway_address: str
    id: int
    internal_ipv6_prefix: str
    ip_cidr_range: str
    ip_collection: str
    ipv6_access_type: str
    ipv6_cidr_range: str
    ipv6_gce_endpoint: str
    kind: str
    log_config: SubnetworkLogConfig
    name: str
    network: str
    params: SubnetworkParams
    private_ip_google_access: bool
    private_ipv6_google_access: str
    purpose: str
    region: str
    reserved_internal_range: str
    resolve_subnet_mask: str
    role: str
    secondary_ip_ranges: MutableSequence[SubnetworkSecondaryRange]
    self_link: str
    stack_type: str
    state: str
    system_reserved_external_ipv6_ranges: MutableSequence[str]
    system_reserved_internal_ipv6_ranges: MutableSequence[str]
    utilization_details: SubnetworkUtilizationDetails

class SubnetworkLogConfig(proto.Message):
    aggregation_interval: str
    enable: bool
    filter_expr: str
    flow_sampling: float
    metadata: str
    metadata_fields: MutableSequence[str]

class SubnetworkParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class SubnetworkSecondaryRange(proto.Message):
    ip_cidr_range: str
    ip_collection: str
    ip_version: str
    range_name: str
    reserved_internal_range: str

class SubnetworkUtilizationDetails(proto.Message):
    external_ipv6_instance_utilization: SubnetworkUtilizationDetailsIPV6Utilization
    external_ipv6_lb_utilization: SubnetworkUtilizationDetailsIPV6Utilization
    internal_ipv6_utilization: SubnetworkUtilizationDetailsIPV6Utilization
    ipv4_utilizations: MutableSequence[SubnetworkUtilizationDetailsIPV4Utilization]

class SubnetworkUtilizationDetailsIPV4Utilization(proto.Message):
    range_name: str
    total_allocated_ip: int
    total_free_ip: int

class SubnetworkUtilizationDetailsIPV6Utilization(proto.Message):
    total_allocated_ip: Uint128
    total_free_ip: Uint128

class SubnetworksScopedList(proto.Message):
    subnetworks: MutableSequence[Subnetwork]
    warning: Warning

class SubnetworksSetPrivateIpGoogleAccessRequest(proto.Message):
    private_ip_google_access: bool

class Subsetting(proto.Message):
    policy: str

class TCPHealthCheck(proto.Message):
    port: int
    port_name: str
    port_specification: str
    proxy_header: str
    request: str
    response: str

class Tags(proto.Message):
    fingerprint: str
    items: MutableSequence[str]

class TargetHttpProxiesScopedList(proto.Message):
    target_http_proxies: MutableSequence[TargetHttpProxy]
    warning: Warning

class TargetHttpProxy(proto.Message):
    creation_timestamp: str
    description: str
    fingerprint: str
    http_keep_alive_timeout_sec: int
    id: int
    kind: str
    name: str
    proxy_bind: bool
    region: str
    self_link: str
    url_map: str

class TargetHttpsProxiesScopedList(proto.Message):
    target_https_proxies: MutableSequence[TargetHttpsProxy]
    warning: Warning

class TargetHttpsProxy(proto.Message):
    authorization_policy: str
    certificate_map: str
    creation_timestamp: str
    description: str
    fingerprint: str
    http_keep_alive_timeout_sec: int
    id: int
    kind: str
    name: str
    proxy_bind: bool
    quic_override: str
    region: str
    self_link: str
    server_tls_policy: str
    ssl_certificates: MutableSequence[str]
    ssl_policy: str
    tls_early_data: str
    url_map: str

class TargetPool(proto.Message):
    backup_pool: str
    creation_timestamp: str
    description: str
    failover_ratio: float
    health_checks: MutableSequence[str]
    id: int
    instances: MutableSequence[str]
    kind: str
    name: str
    region: str
    security_policy: str
    self_link: str
    session_affinity: str

class TargetPoolsScopedList(proto.Message):
    target_pools: MutableSequence[TargetPool]
    warning: Warning

class TargetVpnGateway(proto.Message):
    creation_timestamp: str
    description: str
    forwarding_rules: MutableSequence[str]
    id: int
    kind: str
    label_fingerprint: str
    labels: MutableMapping[str, str]
    name: str
    network: str
    params: TargetVpnGatewayParams
    region: str
    self_link: str
    status: str
    tunnels: MutableSequence[str]

class TargetVpnGatewayParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class TimeZone(proto.Message):
    id: str
    version: str

class Uint128(proto.Message):
    high: int
    low: int

class UpcomingMaintenance(proto.Message):
    can_reschedule: bool
    latest_window_start_time: str
    maintenance_on_shutdown: bool
    maintenance_reasons: MutableSequence[str]
    maintenance_status: str
    type_: str
    window_end_time: str
    window_start_time: str

class UrlMap(proto.Message):
    creation_timestamp: str
    default_custom_error_response_policy: CustomErrorResponsePolicy
    default_route_action: HttpRouteAction
    default_service: str
    default_url_redirect: HttpRedirectAction
    description: str
    fingerprint: str
    header_action: HttpHeaderAction
    host_rules: MutableSequence[HostRule]
    id: int
    kind: str
    name: str
    path_matchers: MutableSequence[PathMatcher]
    region: str
    self_link: str
    tests: MutableSequence[UrlMapTest]

class UrlMapTest(proto.Message):
    description: str
    expected_output_url: str
    expected_redirect_response_code: int
    headers: MutableSequence[UrlMapTestHeader]
    host: str
    path: str
    service: str

class UrlMapTestHeader(proto.Message):
    name: str
    value: str

class UrlMapsScopedList(proto.Message):
    url_maps: MutableSequence[UrlMap]
    warning: Warning

class UrlRewrite(proto.Message):
    host_rewrite: str
    path_prefix_rewrite: str
    path_template_rewrite: str
    regex_rewrite: RegexRewrite

class UsageExportLocation(proto.Message):
    bucket_name: str
    report_name_prefix: str

class VpnGateway(proto.Message):
    creation_timestamp: str
    description: str
    gateway_ip_version: str
    id: int
    kind: str
    label_fingerprint: str
    labels: MutableMapping[str, str]
    name: str
    network: str
    params: VpnGatewayParams
    region: str
    self_link: str
    stack_type: str
    vpn_interfaces: MutableSequence[VpnGatewayVpnGatewayInterface]

class VpnGatewayParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class VpnGatewayVpnGatewayInterface(proto.Message):
    id: int
    interconnect_attachment: str
    ip_address: str
    ipv6_address: str

class VpnTunnel(proto.Message):
    cipher_suite: VpnTunnelCipherSuite
    creation_timestamp: str
    description: str
    detailed_status: str
    id: int
    ike_version: int
    kind: str
    label_fingerprint: str
    labels: MutableMapping[str, str]
    local_traffic_selector: MutableSequence[str]
    name: str
    params: VpnTunnelParams
    peer_external_gateway: str
    peer_external_gateway_interface: int
    peer_gcp_gateway: str
    peer_ip: str
    region: str
    remote_traffic_selector: MutableSequence[str]
    router: str
    self_link: str
    shared_secret: str
    shared_secret_hash: str
    status: str
    target_vpn_gateway: str
    vpn_gateway: str
    vpn_gateway_interface: int

class VpnTunnelCipherSuite(proto.Message):
    phase1: VpnTunnelPhase1Algorithms
    phase2: VpnTunnelPhase2Algorithms

class VpnTunnelParams(proto.Message):
    resource_manager_tags: MutableMapping[str, str]

class VpnTunnelPhase1Algorithms(proto.Message):
    dh: MutableSequence[str]
    encryption: MutableSequence[str]
    integrity: MutableSequence[str]
    prf: MutableSequence[str]

class VpnTunnelPhase2Algorithms(proto.Message):
    encryption: MutableSequence[str]
    integrity: MutableSequence[str]
    pfs: MutableSequence[str]

class Warning(proto.Message):
    code: str
    data: MutableSequence[Data]
    message: str

class Warnings(proto.Message):
    code: str
    data: MutableSequence[Data]
    message: str

class WeightedBackendService(proto.Message):
    backend_service: str
    header_action: HttpHeaderAction
    weight: int

class WorkloadIdentityConfig(proto.Message):
    identity: str
    identity_certificate_enabled: bool

class Zone(proto.Message):
    available_cpu_platforms: MutableSequence[str]
    creation_timestamp: str
    deprecated: DeprecationStatus
    description: str
    id: int
    kind: str
    name: str
    region: str
    resource_status: ZoneResourceStatus
    self_link: str
    status: str
    supports_pzs: bool

class ZoneResourceStatus(proto.Message):
    upcoming_maintenances: MutableSequence[PeriodicPartialMaintenanceSchedule]
