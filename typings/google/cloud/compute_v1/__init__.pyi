"""Clients of Compute Engine; written by scripts/compute_stubs.py."""

from collections.abc import Callable, Iterable

from google.api_core.client_options import ClientOptions
from google.auth.credentials import Credentials
from google.cloud.compute_v1.types import compute
from google.cloud.compute_v1.types.compute import *

class AddressesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListAddressesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.AddressesScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteAddressRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetAddressRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Address: ...
    def insert_unary(
        self,
        request: compute.InsertAddressRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListAddressesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Address]: ...

class AdviceClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def calendar_mode(
        self,
        request: compute.CalendarModeAdviceRpcRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.CalendarModeAdviceResponse: ...

class BackendServicesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListBackendServicesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.BackendServicesScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteBackendServiceRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetBackendServiceRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.BackendService: ...
    def insert_unary(
        self,
        request: compute.InsertBackendServiceRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListBackendServicesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.BackendService]: ...
    def patch_unary(
        self,
        request: compute.PatchBackendServiceRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class DisksClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListDisksRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.DisksScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteDiskRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetDiskRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Disk: ...
    def insert_unary(
        self,
        request: compute.InsertDiskRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListDisksRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Disk]: ...

class FirewallsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def delete_unary(
        self,
        request: compute.DeleteFirewallRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetFirewallRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Firewall: ...
    def insert_unary(
        self,
        request: compute.InsertFirewallRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListFirewallsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Firewall]: ...
    def patch_unary(
        self,
        request: compute.PatchFirewallRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class ForwardingRulesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListForwardingRulesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.ForwardingRulesScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteForwardingRuleRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetForwardingRuleRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.ForwardingRule: ...
    def insert_unary(
        self,
        request: compute.InsertForwardingRuleRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListForwardingRulesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.ForwardingRule]: ...
    def patch_unary(
        self,
        request: compute.PatchForwardingRuleRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class FutureReservationsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListFutureReservationsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.FutureReservationsScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteFutureReservationRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetFutureReservationRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.FutureReservation: ...
    def insert_unary(
        self,
        request: compute.InsertFutureReservationRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListFutureReservationsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.FutureReservation]: ...

class GlobalAddressesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def delete_unary(
        self,
        request: compute.DeleteGlobalAddressRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetGlobalAddressRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Address: ...
    def insert_unary(
        self,
        request: compute.InsertGlobalAddressRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListGlobalAddressesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Address]: ...

class GlobalForwardingRulesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def delete_unary(
        self,
        request: compute.DeleteGlobalForwardingRuleRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetGlobalForwardingRuleRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.ForwardingRule: ...
    def insert_unary(
        self,
        request: compute.InsertGlobalForwardingRuleRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListGlobalForwardingRulesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.ForwardingRule]: ...
    def patch_unary(
        self,
        request: compute.PatchGlobalForwardingRuleRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class GlobalNetworkEndpointGroupsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def delete_unary(
        self,
        request: compute.DeleteGlobalNetworkEndpointGroupRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetGlobalNetworkEndpointGroupRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.NetworkEndpointGroup: ...
    def insert_unary(
        self,
        request: compute.InsertGlobalNetworkEndpointGroupRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListGlobalNetworkEndpointGroupsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.NetworkEndpointGroup]: ...

class GlobalOperationsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListGlobalOperationsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.OperationsScopedList]]: ...
    def get(
        self,
        request: compute.GetGlobalOperationRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListGlobalOperationsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Operation]: ...

class HealthChecksClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListHealthChecksRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.HealthChecksScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteHealthCheckRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetHealthCheckRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.HealthCheck: ...
    def insert_unary(
        self,
        request: compute.InsertHealthCheckRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListHealthChecksRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.HealthCheck]: ...
    def patch_unary(
        self,
        request: compute.PatchHealthCheckRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class InstanceGroupManagersClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListInstanceGroupManagersRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.InstanceGroupManagersScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteInstanceGroupManagerRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetInstanceGroupManagerRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.InstanceGroupManager: ...
    def insert_unary(
        self,
        request: compute.InsertInstanceGroupManagerRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListInstanceGroupManagersRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.InstanceGroupManager]: ...
    def list_errors(
        self,
        request: compute.ListErrorsInstanceGroupManagersRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.InstanceManagedByIgmError]: ...
    def patch_unary(
        self,
        request: compute.PatchInstanceGroupManagerRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class InstanceGroupsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListInstanceGroupsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.InstanceGroupsScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteInstanceGroupRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetInstanceGroupRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.InstanceGroup: ...
    def insert_unary(
        self,
        request: compute.InsertInstanceGroupRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListInstanceGroupsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.InstanceGroup]: ...

class MachineTypesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListMachineTypesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.MachineTypesScopedList]]: ...
    def get(
        self,
        request: compute.GetMachineTypeRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.MachineType: ...
    def list(
        self,
        request: compute.ListMachineTypesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.MachineType]: ...

class NetworkEndpointGroupsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListNetworkEndpointGroupsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.NetworkEndpointGroupsScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteNetworkEndpointGroupRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetNetworkEndpointGroupRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.NetworkEndpointGroup: ...
    def insert_unary(
        self,
        request: compute.InsertNetworkEndpointGroupRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListNetworkEndpointGroupsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.NetworkEndpointGroup]: ...

class NetworkProfilesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def get(
        self,
        request: compute.GetNetworkProfileRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.NetworkProfile: ...
    def list(
        self,
        request: compute.ListNetworkProfilesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.NetworkProfile]: ...

class NetworksClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def delete_unary(
        self,
        request: compute.DeleteNetworkRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetNetworkRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Network: ...
    def insert_unary(
        self,
        request: compute.InsertNetworkRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListNetworksRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Network]: ...
    def patch_unary(
        self,
        request: compute.PatchNetworkRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class ProjectsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def get(
        self,
        request: compute.GetProjectRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Project: ...

class RegionBackendServicesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def delete_unary(
        self,
        request: compute.DeleteRegionBackendServiceRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetRegionBackendServiceRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.BackendService: ...
    def insert_unary(
        self,
        request: compute.InsertRegionBackendServiceRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListRegionBackendServicesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.BackendService]: ...
    def patch_unary(
        self,
        request: compute.PatchRegionBackendServiceRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class RegionDisksClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def delete_unary(
        self,
        request: compute.DeleteRegionDiskRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetRegionDiskRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Disk: ...
    def insert_unary(
        self,
        request: compute.InsertRegionDiskRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListRegionDisksRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Disk]: ...

class RegionHealthChecksClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def delete_unary(
        self,
        request: compute.DeleteRegionHealthCheckRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetRegionHealthCheckRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.HealthCheck: ...
    def insert_unary(
        self,
        request: compute.InsertRegionHealthCheckRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListRegionHealthChecksRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.HealthCheck]: ...
    def patch_unary(
        self,
        request: compute.PatchRegionHealthCheckRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class RegionOperationsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def get(
        self,
        request: compute.GetRegionOperationRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListRegionOperationsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Operation]: ...

class RegionTargetHttpProxiesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def delete_unary(
        self,
        request: compute.DeleteRegionTargetHttpProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetRegionTargetHttpProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.TargetHttpProxy: ...
    def insert_unary(
        self,
        request: compute.InsertRegionTargetHttpProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListRegionTargetHttpProxiesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.TargetHttpProxy]: ...

class RegionTargetHttpsProxiesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def delete_unary(
        self,
        request: compute.DeleteRegionTargetHttpsProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetRegionTargetHttpsProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.TargetHttpsProxy: ...
    def insert_unary(
        self,
        request: compute.InsertRegionTargetHttpsProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListRegionTargetHttpsProxiesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.TargetHttpsProxy]: ...
    def patch_unary(
        self,
        request: compute.PatchRegionTargetHttpsProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class RegionUrlMapsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def delete_unary(
        self,
        request: compute.DeleteRegionUrlMapRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetRegionUrlMapRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.UrlMap: ...
    def insert_unary(
        self,
        request: compute.InsertRegionUrlMapRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListRegionUrlMapsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.UrlMap]: ...
    def patch_unary(
        self,
        request: compute.PatchRegionUrlMapRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class RegionsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def get(
        self,
        request: compute.GetRegionRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Region: ...
    def list(
        self,
        request: compute.ListRegionsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Region]: ...

class ReservationsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListReservationsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.ReservationsScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteReservationRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetReservationRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Reservation: ...
    def insert_unary(
        self,
        request: compute.InsertReservationRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListReservationsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Reservation]: ...

class ResourcePoliciesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListResourcePoliciesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.ResourcePoliciesScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteResourcePolicyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetResourcePolicyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.ResourcePolicy: ...
    def insert_unary(
        self,
        request: compute.InsertResourcePolicyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListResourcePoliciesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.ResourcePolicy]: ...
    def patch_unary(
        self,
        request: compute.PatchResourcePolicyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class RoutersClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListRoutersRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.RoutersScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteRouterRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetRouterRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Router: ...
    def insert_unary(
        self,
        request: compute.InsertRouterRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListRoutersRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Router]: ...
    def patch_unary(
        self,
        request: compute.PatchRouterRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class SubnetworksClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListSubnetworksRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.SubnetworksScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteSubnetworkRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetSubnetworkRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Subnetwork: ...
    def insert_unary(
        self,
        request: compute.InsertSubnetworkRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListSubnetworksRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Subnetwork]: ...
    def patch_unary(
        self,
        request: compute.PatchSubnetworkRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def set_private_ip_google_access_unary(
        self,
        request: compute.SetPrivateIpGoogleAccessSubnetworkRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class TargetHttpProxiesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListTargetHttpProxiesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.TargetHttpProxiesScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteTargetHttpProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetTargetHttpProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.TargetHttpProxy: ...
    def insert_unary(
        self,
        request: compute.InsertTargetHttpProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListTargetHttpProxiesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.TargetHttpProxy]: ...
    def patch_unary(
        self,
        request: compute.PatchTargetHttpProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class TargetHttpsProxiesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListTargetHttpsProxiesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.TargetHttpsProxiesScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteTargetHttpsProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetTargetHttpsProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.TargetHttpsProxy: ...
    def insert_unary(
        self,
        request: compute.InsertTargetHttpsProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListTargetHttpsProxiesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.TargetHttpsProxy]: ...
    def patch_unary(
        self,
        request: compute.PatchTargetHttpsProxyRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class TargetPoolsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListTargetPoolsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.TargetPoolsScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteTargetPoolRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetTargetPoolRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.TargetPool: ...
    def insert_unary(
        self,
        request: compute.InsertTargetPoolRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListTargetPoolsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.TargetPool]: ...

class UrlMapsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def aggregated_list(
        self,
        request: compute.AggregatedListUrlMapsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[tuple[str, compute.UrlMapsScopedList]]: ...
    def delete_unary(
        self,
        request: compute.DeleteUrlMapRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def get(
        self,
        request: compute.GetUrlMapRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.UrlMap: ...
    def insert_unary(
        self,
        request: compute.InsertUrlMapRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListUrlMapsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.UrlMap]: ...
    def patch_unary(
        self,
        request: compute.PatchUrlMapRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...

class ZoneOperationsClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def get(
        self,
        request: compute.GetZoneOperationRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Operation: ...
    def list(
        self,
        request: compute.ListZoneOperationsRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Operation]: ...

class ZonesClient:
    def __init__(
        self,
        *,
        credentials: Credentials | None = ...,
        transport: str | Callable[..., object] | None = ...,
        client_options: ClientOptions | dict[str, object] | None = ...,
    ) -> None: ...
    def get(
        self,
        request: compute.GetZoneRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> compute.Zone: ...
    def list(
        self,
        request: compute.ListZonesRequest | dict[str, object] | None = ...,
        *,
        retry: object = ...,
        timeout: object = ...,
    ) -> Iterable[compute.Zone]: ...
