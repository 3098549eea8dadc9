"""How Google Cloud is reached: one credential, clients made when used, reads made again.

A changing call is made once: whether it is made again, after a look whether it had its effect, is the
engine's decision (see `Driver`). So every call is made without the SDK's own retries; only reads are
repeated here.
"""

from __future__ import annotations

import threading
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.api_core import exceptions as api
from google.auth.transport.requests import AuthorizedSession

from cloudrec.cloud import reading
from cloudrec.engine.clock import Clock
from cloudrec.errors import MissingExtraError, PreflightError, SpecError
from cloudrec.providers.gcp import credentials, errors, ids
from cloudrec.providers.gcp.prices import shipped
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
_TIMEOUT_S = 60.0
_REST, _GRPC = "rest", "grpc"
# Module, class and transport of each service's client, but Compute Engine's, which are many.
_CLIENTS: Mapping[str, tuple[str, str, str]] = {
    "artifactregistry": ("google.cloud.artifactregistry_v1", "ArtifactRegistryClient", _REST),
    "billing": ("google.cloud.billing_v1", "CloudBillingClient", _REST),
    "catalog": ("google.cloud.billing_v1", "CloudCatalogClient", _REST),
    "cloudquotas": ("google.cloud.cloudquotas_v1", "CloudQuotasClient", _REST),
    "cloudresourcemanager": ("google.cloud.resourcemanager_v3", "ProjectsClient", _REST),
    "container": ("google.cloud.container_v1", "ClusterManagerClient", _GRPC),
    "lustre": ("google.cloud.lustre_v1", "LustreClient", _GRPC),
    "serviceusage": ("google.cloud.service_usage_v1", "ServiceUsageClient", _REST),
}
_COMPUTE = "google.cloud.compute_v1"


class Gcp:
    """One project in one region, as the environment's credentials reach it.

    Args:
        environment: variables as Google's tools know them (GOOGLE_APPLICATION_CREDENTIALS,
            GOOGLE_CLOUD_PROJECT), GOOGLE_CLOUD_REGION, and where another Google Cloud is to be reached
            GOOGLE_CLOUD_ENDPOINT_URL for REST and GOOGLE_CLOUD_GRPC_ENDPOINT, host and port, for gRPC.
        region: the region; the environment's own when None.
    """

    def __init__(self, environment: Mapping[str, str], region: str | None = None) -> None:
        self._environment = environment
        self._region = region
        self.clock = Clock.of(environment)
        self.fresh = errors.Fresh(self.clock)
        self.prices = shipped()
        self.offered: dict[str, tuple[str, ...]] = {}  # machine type -> zones that have it, where asked for
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()  # making a client is not thread-safe; using one is
        self._locks: dict[str, threading.Lock] = {}

    @cached_property
    def _loaded(self) -> tuple[credentials.Shared, str]:
        return credentials.load(self._environment)

    @property
    def credentials(self) -> credentials.Shared:
        """The credential of all clients."""
        return self._loaded[0]

    @property
    def given_region(self) -> str:
        """The region as it is given, be it one or not; empty when it is not."""
        return self._region or self._environment.get("GOOGLE_CLOUD_REGION") or ""

    @cached_property
    def region(self) -> str:
        """The region; PreflightError where nothing names one, SpecError where it is none."""
        region = self.given_region
        if not region:
            raise PreflightError(
                "no Google Cloud region is named",
                remedy="give --region us-central1, or set GOOGLE_CLOUD_REGION",
            )
        listing = partial(self.call, self.compute("regions").list, project=self.project)
        known = {row.name for row in self.repeat(lambda: list(listing()))}
        if region not in known:
            raise SpecError(
                f"project {self.project} has no region {region!r}", remedy=did_you_mean(region, known)
            )
        return region

    @cached_property
    def zones(self) -> tuple[str, ...]:
        """The region's zones that are up, sorted."""
        rows = self.rows(self.compute("zones").list, project=self.project)
        return tuple(
            sorted(row.name for row in rows if ids.name(row.region) == self.region and row.status == "UP")
        )

    @cached_property
    def project(self) -> str:
        """The project's id; PreflightError where nothing names one."""
        project = self._environment.get("GOOGLE_CLOUD_PROJECT") or self._loaded[1]
        if not project:
            raise PreflightError(
                "which Google Cloud project to use is not told",
                remedy="set GOOGLE_CLOUD_PROJECT, or `gcloud config set project`",
            )
        return project

    @cached_property
    def account(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The project as Google describes it: its name (projects/NUMBER), project_id and state."""
        projects = self.client("cloudresourcemanager")
        return self.read(projects.get_project, name=f"projects/{self.project}")

    @property
    def number(self) -> str:
        """The project's number."""
        return str(self.account.name).rpartition("/")[2]

    def client(self, service: str) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """Return the client of a service, by the first word of its address."""
        return self._once(service, lambda: self._make(*_CLIENTS[service]))

    def compute(self, collection: str) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """Return Compute Engine's client of a collection, by its name ("region_operations")."""
        name = "".join(word.capitalize() for word in collection.split("_"))
        return self._once(collection, lambda: self._make(_COMPUTE, f"{name}Client", _REST))

    @property
    def storage(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """Cloud Storage's client."""
        return self._once("storage", self._make_storage)

    def call(self, method: Callable[..., T], **request: object) -> T:
        """Make a call of a client once.

        Args:
            method: of the client.
            request: fields of its request message.

        Raises:
            google.api_core.exceptions.GoogleAPICallError: Google refuses.
            google.auth.exceptions.GoogleAuthError: there are no credentials.
            requests.exceptions.RequestException: it cannot be reached by REST.
        """
        return method(request=request, retry=None, timeout=_TIMEOUT_S)

    def read(self, method: Callable[..., T], **request: object) -> T:
        """Make a call that changes nothing, again where the network or the rate limit is in its way."""
        return self.repeat(partial(self.call, method, **request))

    def get(self, method: Callable[..., T], **request: object) -> T | None:
        """Read one thing; None where it is not there, or its API is not enabled."""
        return self.or_none(partial(self.read, method, **request))

    def rows(self, method: Callable[..., Any], **request: object) -> list[Any]:
        """Read all pages of a list; none where its API is not enabled, and so nobody can have made any."""
        return self.or_none(lambda: self.repeat(lambda: list(self.call(method, **request)))) or []

    def repeat(self, work: Callable[[], T]) -> T:
        """Return what a read returns, making it again where the network or the rate limit is in its way."""
        return reading.read(work, again=errors.is_transient, speed=self.clock.speed)

    @staticmethod
    def or_none(work: Callable[[], T]) -> T | None:
        """Return what a read returns; None where what it reads, or its API, is not there."""
        try:
            return work()
        except api.GoogleAPICallError as error:
            if errors.is_absent(error) or errors.is_disabled(error):
                return None
            raise

    def send(self, service: str, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - whatever it answers
        """Make one REST call of a service that has no client of that kind; its errors are as the clients'.

        Args:
            service: the first word of its address.
            method: "GET", "POST" or "DELETE".
            path: after the address, with its query.
            body: what is sent, as JSON.
        """
        base = self.endpoint or f"https://{service}.googleapis.com"
        session = self._once("session", lambda: AuthorizedSession(self.credentials))
        answer = session.request(method, f"{base}{path}", json=body, timeout=_TIMEOUT_S)
        if not answer.ok:
            raise api.from_http_response(answer)
        return answer.json() if answer.content else {}

    def types(self, service: str) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """Return the module that holds a service's messages; "compute" for Compute Engine's."""
        return import_module(_COMPUTE if service == "compute" else _CLIENTS[service][0])

    def lock(self, name: str) -> threading.Lock:
        """Return the lock under which a thing that is read, edited and written back is changed."""
        with self._lock:
            return self._locks.setdefault(name, threading.Lock())

    @property
    def endpoint(self) -> str:
        """Where all of REST is, in place of each service's own address; empty when that is to be used."""
        return (self._environment.get("GOOGLE_CLOUD_ENDPOINT_URL") or "").rstrip("/")

    def _once(self, name: str, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        with self._lock:
            if name not in self._clients:
                self._clients[name] = make()
            return self._clients[name]

    def _make(self, module: str, name: str, transport: str) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        try:
            made = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            raise MissingExtraError("gcp", module=str(error.name)) from error
        target = self._environment.get("GOOGLE_CLOUD_GRPC_ENDPOINT")
        if transport == _GRPC and target:
            channel = grpc.intercept_channel(
                grpc.insecure_channel(target), credentials.Bearer(self.credentials)
            )
            return made(transport=made.get_transport_class(_GRPC)(channel=channel))
        options = {"api_endpoint": self.endpoint} if transport == _REST and self.endpoint else None
        return made(credentials=self.credentials, transport=transport, client_options=options)

    def _make_storage(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        storage = import_module("google.cloud.storage")
        options = {"api_endpoint": self.endpoint} if self.endpoint else None
        return storage.Client(project=self.project, credentials=self.credentials, client_options=options)
