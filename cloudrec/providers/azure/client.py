"""How Azure is reached: one credential and pool of connections, clients made when used, reads made again.

A changing call is made once: whether it is made again, after a look whether it had its effect, is the
engine's decision (see `Driver`). So the SDK's own policies that repeat calls, or register a resource provider
behind the caller's back, are left out; only reads are repeated here.
"""

from __future__ import annotations

import logging
import threading
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import requests
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline import policies
from azure.core.pipeline.transport import RequestsTransport
from azure.core.rest import HttpRequest
from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy, ARMHttpLoggingPolicy
from requests.adapters import HTTPAdapter

from cloudrec import __version__
from cloudrec.cloud import reading
from cloudrec.engine.clock import Clock
from cloudrec.errors import MissingExtraError, PreflightError, SpecError
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.credentials import Login
from cloudrec.providers.azure.grants import Grants
from cloudrec.providers.azure.prices import shipped
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.providers.azure.credentials import Caller

_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 10, 60
_POOL = 64  # connections: as many as the engine has threads
# Module and class of each service's client, by the last word of the namespace that it speaks to.
_CLIENTS: Mapping[str, tuple[str, str]] = {
    "authorization": ("azure.mgmt.authorization", "AuthorizationManagementClient"),
    "compute": ("azure.mgmt.compute", "ComputeManagementClient"),
    "containerregistry": ("azure.mgmt.containerregistry", "ContainerRegistryManagementClient"),
    "containerservice": ("azure.mgmt.containerservice", "ContainerServiceClient"),
    "managedidentity": ("azure.mgmt.msi", "ManagedServiceIdentityClient"),
    "network": ("azure.mgmt.network", "NetworkManagementClient"),
    "resources": ("azure.mgmt.resource.resources", "ResourceManagementClient"),
    "storage": ("azure.mgmt.storage", "StorageManagementClient"),
    "storagecache": ("azure.mgmt.storagecache", "StorageCacheManagementClient"),
}
_LOADED: dict[str, Any] = {}  # by package: the module of its models, ready for use by several threads
_LOADING = threading.Lock()
# What it cannot read of an answer, the SDK logs with a traceback; we tell it as an error.
logging.getLogger("azure").addHandler(logging.NullHandler())


class Azure:
    """One subscription in one region, as the environment's credentials reach it.

    Args:
        environment: variables as Azure's tools know them (AZURE_SUBSCRIPTION_ID, AZURE_TENANT_ID,
            AZURE_CLIENT_ID, AZURE_CLIENT_SECRET, AZURE_AUTHORITY_HOST), AZURE_REGION, and where another
            Azure is to be reached AZURE_RESOURCE_MANAGER_ENDPOINT_URL and AZURE_CA_BUNDLE. Without a
            client's secret, the credentials are looked for where Azure's tools leave them.
        region: the region; the environment's own when None.
    """

    def __init__(self, environment: Mapping[str, str], region: str | None = None) -> None:
        self._environment = environment
        self._region = region
        self.login = Login(environment)
        self.clock = Clock.of(environment)
        self.grants = Grants(self.clock)
        self.prices = shipped()
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()  # making a client is not thread-safe; using one is

    @property
    def credential(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The credential, as the SDK has it."""
        return self.login.credential

    @property
    def given_region(self) -> str:
        """The region as it is given, be it one or not, written as Azure does; empty when it is not."""
        region = self._region or self._environment.get("AZURE_REGION") or ""
        return region.lower().replace(" ", "")

    @cached_property
    def region(self) -> str:
        """The region; PreflightError where nothing names one, SpecError where it is none."""
        region = self.given_region
        if not region:
            raise PreflightError(
                "no Azure region is named", remedy="give --region eastus, or set AZURE_REGION"
            )
        listed = self.rows(self._subscriptions.subscriptions.list_locations, self.subscription)
        known = {str(row.name) for row in listed}
        if region not in known:
            raise SpecError(
                f"subscription {self.subscription} has no region {region!r}",
                remedy=did_you_mean(region, known),
            )
        return region

    @cached_property
    def subscription(self) -> str:
        """The subscription's id: the environment's, or the only enabled one.

        Raises:
            PreflightError: none is given, and the credentials see none or several.
        """
        given = self._environment.get("AZURE_SUBSCRIPTION_ID")
        if given:
            return given.lower()
        rows = self.rows(self._subscriptions.subscriptions.list)
        enabled = {str(row.subscription_id): row.display_name for row in rows if row.state == "Enabled"}
        if len(enabled) == 1:
            return next(iter(enabled)).lower()
        told = ", ".join(f"{one} ({name})" for one, name in enabled.items()) or "none"
        raise PreflightError(
            f"which Azure subscription to use is not told; the credentials see: {told}",
            remedy="set AZURE_SUBSCRIPTION_ID, or log in to one that may be used",
        )

    @cached_property
    def account(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The subscription as Azure describes it: its state, tenant_id and display_name."""
        return self.read(self._subscriptions.subscriptions.get, self.subscription)

    @property
    def caller(self) -> Caller:
        """Who calls."""
        return self.login.caller

    def client(self, service: str) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """Return the client of a service, by the last word of its namespace; it makes every call once."""
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._make(*_CLIENTS[service], self.subscription)
            return self._clients[service]

    def read(self, operation: Callable[..., Any], *arguments: object, **parameters: object) -> Any:  # noqa: ANN401 - whatever it answers
        """Make a call that changes nothing, again where the network or the rate limit is in its way.

        Raises:
            azure.core.exceptions.AzureError: Azure refuses, cannot be reached, or there are no credentials.
        """
        speed = self.clock.speed
        return reading.read(
            partial(operation, *arguments, **parameters),
            again=partial(errors.again, speed=speed),
            speed=speed,
        )

    def get(self, operation: Callable[..., Any], *arguments: object, **parameters: object) -> Any:  # noqa: ANN401 - whatever it answers
        """Read one thing; None where it, or what it would be in, is not there."""
        try:
            return self.read(operation, *arguments, **parameters)
        except HttpResponseError as error:
            if errors.is_absent(error):
                return None
            raise

    def rows(self, operation: Callable[..., Any], *arguments: object, **parameters: object) -> list[Any]:
        """Read all pages of a list; an empty one where what they would be in is not there."""
        return self.get(lambda: list(operation(*arguments, **parameters))) or []

    def send(self, method: str, path: str, *, api_version: str = "") -> Any:  # noqa: ANN401 - as the SDK answers
        """Make one call that no client has, and return the answer; its errors are raised as the SDK's.

        Args:
            method: "GET" or "POST".
            path: below the endpoint, or a whole URL that Azure gave us.
            api_version: of the call, where the path does not have it.
        """
        parameters = {"api-version": api_version} if api_version else {}
        request = HttpRequest(method, path, params=parameters)
        response = self.client("resources").send_request(request)
        response.raise_for_status()
        return response

    def models(self, service: str) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """Return the module of a service's models, for threads to use at the same time."""
        return load_models(_CLIENTS[service][0])

    def resource_skus(self) -> Sequence[Any]:
        """Return what the region sells, as `resource_skus.list` tells: thousands of rows, asked for once."""
        return self._skus

    @cached_property
    def _skus(self) -> Sequence[Any]:
        compute = self.client("compute")
        return self.rows(compute.resource_skus.list, filter=f"location eq '{self.region}'")

    @cached_property
    def _subscriptions(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        return self._make("azure.mgmt.resource.subscriptions", "SubscriptionClient")

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

    def _make(self, module: str, name: str, *arguments: str) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        try:
            made = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            raise MissingExtraError("azure", module=str(error.name)) from error
        load_models(module)
        return made(
            self.credential,
            *arguments,
            base_url=self.login.endpoint,
            credential_scopes=self.login.scopes,
            transport=self._transport,
            policies=[
                policies.RequestIdPolicy(),
                policies.HeadersPolicy(),
                policies.UserAgentPolicy(f"cloudrec/{__version__}"),
                policies.ContentDecodePolicy(),
                ARMChallengeAuthenticationPolicy(self.credential, *self.login.scopes),
                ARMHttpLoggingPolicy(),
            ],
        )


def load_models(package: str) -> Any:  # noqa: ANN401 - the SDK is seen as Any
    """Return the module of a package's models, each of which knows its fields.

    The SDK's models find out their fields when the first of each is made, and not safely: where two threads
    make their first ones at once, nested values may be left as plain dictionaries, without a word
    (https://github.com/Azure/azure-sdk-for-python/issues/47426). So one of each is made here, by one thread.
    """
    with _LOADING:
        if package not in _LOADED:
            module = import_module(f"{package}.models")
            models: list[Any] = [each for each in vars(module).values() if isinstance(each, type)]
            for model in models:
                if hasattr(model, "_calculated"):
                    model.__new__(model)
            _LOADED[package] = module
        return _LOADED[package]
