"""The clients of Azure's services, created when first used, on one pool of connections."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

import requests
from azure.core.pipeline import policies
from azure.core.pipeline.transport import RequestsTransport
from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy, ARMHttpLoggingPolicy
from requests.adapters import HTTPAdapter

from cloudrec.errors import MissingExtraError
from cloudrec.providers.azure.account import Login
from cloudrec.providers.azure.api.answers import ForeignAnswerPolicy
from cloudrec.providers.azure.api.models import load_models
from cloudrec.providers.base.lazy import Lazy
from cloudrec.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from azure.core.credentials import TokenCredential
    from azure.mgmt import compute as _compute
    from azure.mgmt import containerregistry as _containerregistry
    from azure.mgmt import containerservice as _containerservice
    from azure.mgmt import network as _network
    from azure.mgmt import storage as _storage
    from azure.mgmt import storagecache as _storagecache
    from azure.mgmt.authorization import v2022_04_01 as _authorization
    from azure.mgmt.msi import v2024_11_30 as _managedidentity
    from azure.mgmt.resource import resources as _resources
    from azure.mgmt.resource import subscriptions as _subscriptions
else:
    _authorization = Lazy("azure.mgmt.authorization.v2022_04_01")
    _compute = Lazy("azure.mgmt.compute")
    _containerregistry = Lazy("azure.mgmt.containerregistry")
    _containerservice = Lazy("azure.mgmt.containerservice")
    _managedidentity = Lazy("azure.mgmt.msi.v2024_11_30")
    _network = Lazy("azure.mgmt.network")
    _resources = Lazy("azure.mgmt.resource.resources")
    _storage = Lazy("azure.mgmt.storage")
    _storagecache = Lazy("azure.mgmt.storagecache")
    _subscriptions = Lazy("azure.mgmt.resource.subscriptions")

_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 10, 60
_POOL = 64  # connections: the engine's number of threads
C = TypeVar("C")


class Clients(ABC):
    """The client of each service for one subscription; the clients do not retry calls.

    Args:
        environment: as `client.Azure` has it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.login = Login(environment)
        self._clients: dict[str, object] = {}
        self._lock = threading.Lock()  # creating a client is not thread-safe; using one is

    @property
    @abstractmethod
    def subscription(self) -> str:
        """The subscription's id."""

    @property
    def credential(self) -> TokenCredential:
        """The SDK's credential object."""
        return self.login.credential

    @property
    def authorization(self) -> _authorization.AuthorizationManagementClient:
        """Role assignments and definitions."""
        return self._client(lambda: _authorization.AuthorizationManagementClient)

    @property
    def compute(self) -> _compute.ComputeManagementClient:
        """Machines, their sizes and reservations."""
        return self._client(lambda: _compute.ComputeManagementClient)

    @property
    def containerregistry(self) -> _containerregistry.ContainerRegistryManagementClient:
        """Image registries."""
        return self._client(lambda: _containerregistry.ContainerRegistryManagementClient)

    @property
    def containerservice(self) -> _containerservice.ContainerServiceClient:
        """AKS's clusters and pools."""
        return self._client(lambda: _containerservice.ContainerServiceClient)

    @property
    def managedidentity(self) -> _managedidentity.ManagedServiceIdentityClient:
        """Identities and their federated credentials."""
        return self._client(lambda: _managedidentity.ManagedServiceIdentityClient)

    @property
    def network(self) -> _network.NetworkManagementClient:
        """Networks, subnets, addresses and gateways."""
        return self._client(lambda: _network.NetworkManagementClient)

    @property
    def resources(self) -> _resources.ResourceManagementClient:
        """Resource groups and resources of any type."""
        return self._client(lambda: _resources.ResourceManagementClient)

    @property
    def storage(self) -> _storage.StorageManagementClient:
        """Storage accounts and containers."""
        return self._client(lambda: _storage.StorageManagementClient)

    @property
    def storagecache(self) -> _storagecache.StorageCacheManagementClient:
        """Lustre file systems."""
        return self._client(lambda: _storagecache.StorageCacheManagementClient)

    @cached_property
    def subscriptions(self) -> _subscriptions.SubscriptionClient:
        """Subscriptions; this client is not bound to one."""
        made = self._class(lambda: _subscriptions.SubscriptionClient)
        return made(self.credential, **self._options)

    def _client(self, load: Callable[[], Callable[..., C]]) -> C:
        """Return the client of this class, which is created on the first call."""
        with self._lock:
            made = self._class(load)
            name = f"{made.__module__}.{made.__qualname__}"
            if name not in self._clients:
                self._clients[name] = made(self.credential, self.subscription, **self._options)
            return cast("C", self._clients[name])

    @staticmethod
    def _class(load: Callable[[], Callable[..., C]]) -> Callable[..., C]:
        """Import a client's class and prepare its models for several threads.

        Raises:
            MissingExtraError: the SDK is not installed.
        """
        try:
            made = load()
        except ModuleNotFoundError as error:
            raise MissingExtraError("azure", module=str(error.name)) from error
        load_models(f"{made.__module__.rpartition('.')[0]}.models")
        return made

    @cached_property
    def _transport(self) -> RequestsTransport:
        session = requests.Session()
        session.mount("https://", HTTPAdapter(pool_maxsize=_POOL, max_retries=0))
        return RequestsTransport(
            session=session,
            session_owner=False,
            connection_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            connection_verify=self.login.verify,
        )

    @property
    def _options(self) -> dict[str, object]:
        """The arguments of every client's constructor."""
        return {
            "base_url": self.login.endpoint,
            "credential_scopes": self.login.scopes,
            "transport": self._transport,
            # By default a client also has policies that retry calls and that register resource providers.
            "policies": [
                policies.RequestIdPolicy(),
                policies.HeadersPolicy(),
                policies.UserAgentPolicy(f"cloudrec/{__version__}"),
                policies.ContentDecodePolicy(),
                ForeignAnswerPolicy(),  # a later policy sees the answer first
                ARMChallengeAuthenticationPolicy(self.credential, *self.login.scopes),
                ARMHttpLoggingPolicy(),
            ],
        }
