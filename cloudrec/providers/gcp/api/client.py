"""The connection to Google Cloud: one credential, clients that are made on first use, and retried reads.

A changing call is made once: the engine decides whether to repeat it, after a check whether it had its effect
(see `Driver`). So every call is made without the SDK's own retries, and only reads are repeated here.
"""

from __future__ import annotations

import ipaddress
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from urllib.parse import urlsplit

import grpc
from google.api_core import exceptions as api
from google.auth.transport.requests import AuthorizedSession
from requests.adapters import HTTPAdapter

from cloudrec.engine.clock import Clock
from cloudrec.errors import PreflightError, SpecError, UnreadableAnswerError
from cloudrec.providers.base import reading
from cloudrec.providers.gcp import account as credentials
from cloudrec.providers.gcp import errors
from cloudrec.providers.gcp.api import ids, sdk
from cloudrec.providers.gcp.prices import shipped
from cloudrec.spec.suggest import did_you_mean
from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from requests import Response

T = TypeVar("T")
C = TypeVar("C")  # a client
R = TypeVar("R")  # a request
R_contra = TypeVar("R_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)
_TIMEOUT_S = 60.0
_REST, _GRPC = "GOOGLE_CLOUD_ENDPOINT_URL", "GOOGLE_CLOUD_GRPC_ENDPOINT"
_COMPUTE_ENGINE = "services/6F81-5844-456A"  # Compute Engine in the price catalogue
_OK = 200
_SHOWN = 80  # bytes of a foreign answer in a message
_CONNECTIONS = 32  # to one host that are kept open: as many threads call at the same time
_PAGE = 5000  # SKUs; the catalogue's limit for one page


class Method(Protocol[R_contra, T_co]):
    """A method of one of the SDK's clients."""

    def __call__(self, request: R_contra, *, retry: None, timeout: float) -> T_co:
        """Make the call."""


class Gcp:
    """One project in one region, with the credentials of the environment.

    Args:
        environment: the variables of Google's tools (GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_CLOUD_PROJECT),
            GOOGLE_CLOUD_REGION, and for another endpoint than Google's own GOOGLE_CLOUD_ENDPOINT_URL (REST)
            and GOOGLE_CLOUD_GRPC_ENDPOINT (gRPC, HOST:PORT).
        region: the region; None for the one that the environment names.
    """

    def __init__(self, environment: Mapping[str, str], region: str | None = None) -> None:
        self._environment = environment
        self._region = region
        self.clock = Clock.of(environment)
        self.fresh = errors.Fresh(self.clock)
        self.prices = shipped().within(self.given_region)
        self.offered: dict[str, tuple[str, ...]] = {}  # machine type -> the zones that offer it, cached
        self.cache: dict[str, Any] = {}  # by name: facts that this process reads once
        self._clients: dict[object, object] = {}  # by class or name
        self._connections = HTTPAdapter(pool_maxsize=_CONNECTIONS)
        self._lock = threading.Lock()  # making a client is not thread-safe; using one is
        self._locks: dict[str, threading.Lock] = {}

    @cached_property
    def _loaded(self) -> tuple[credentials.Shared, str]:
        return credentials.load(self._environment)

    @property
    def credentials(self) -> credentials.Shared:
        """The credential that all clients share."""
        return self._loaded[0]

    @property
    def given_region(self) -> str:
        """The region of the argument or the environment, not validated; empty if neither names one."""
        return self._region or self._environment.get("GOOGLE_CLOUD_REGION") or ""

    @cached_property
    def region(self) -> str:
        """The validated region; PreflightError if none is named, SpecError if it does not exist."""
        region = self.given_region
        if not region:
            raise PreflightError(
                "no Google Cloud region is named",
                remedy="give --region us-central1, or set GOOGLE_CLOUD_REGION",
            )
        listing = self.rest(sdk.compute.RegionsClient).list
        request = sdk.compute.ListRegionsRequest(project=self.project)
        known = {row.name for row in self.repeat(lambda: list(self.call(listing, request)))}
        if region not in known:
            raise SpecError(
                f"project {self.project} has no region {region!r}", remedy=did_you_mean(region, known)
            )
        return region

    @cached_property
    def zones(self) -> tuple[str, ...]:
        """The zones of the region whose status is UP, sorted."""
        request = sdk.compute.ListZonesRequest(project=self.project)
        rows = self.rows(self.rest(sdk.compute.ZonesClient).list, request)
        return tuple(
            sorted(row.name for row in rows if ids.name(row.region) == self.region and row.status == "UP")
        )

    @cached_property
    def project(self) -> str:
        """The id of the project; PreflightError if neither the environment nor the credentials name one."""
        project = self._environment.get("GOOGLE_CLOUD_PROJECT") or self._loaded[1]
        if not project:
            raise PreflightError(
                "no Google Cloud project is named",
                remedy="set GOOGLE_CLOUD_PROJECT, or run `gcloud config set project PROJECT`",
            )
        return project

    @cached_property
    def account(self) -> sdk.resourcemanager.Project:
        """The description of the project: its name (projects/NUMBER), project_id and state."""
        request = sdk.resourcemanager.GetProjectRequest(name=f"projects/{self.project}")
        return self.read(self.rest(sdk.resourcemanager.ProjectsClient).get_project, request)

    @property
    def number(self) -> str:
        """The number of the project."""
        return self.account.name.rpartition("/")[2]

    def machine_type(self, name: str) -> sdk.compute.MachineType | None:
        """Return the description of a machine type in the region; None if no zone offers it."""
        request = sdk.compute.AggregatedListMachineTypesRequest(
            project=self.project, filter=f'name = "{name}"'
        )
        for place, scoped in self.rows(self.rest(sdk.compute.MachineTypesClient).aggregated_list, request):
            if place.startswith(f"zones/{self.region}-") and scoped.machine_types:
                return scoped.machine_types[0]
        return None

    def skus(self) -> list[sdk.billing.Sku]:
        """Return the Cloud Billing catalogue's SKUs of Compute Engine, of every region."""
        request = sdk.billing.ListSkusRequest(parent=_COMPUTE_ENGINE, page_size=_PAGE)
        return self.rows(self.rest(sdk.billing.CloudCatalogClient).list_skus, request)

    @property
    def container(self) -> sdk.container.ClusterManagerClient:
        """The client of GKE."""
        made = sdk.container.ClusterManagerClient
        return self._rpc(made, made.get_transport_class)

    @property
    def lustre(self) -> sdk.lustre.LustreClient:
        """The client of Managed Lustre."""
        made = sdk.lustre.LustreClient
        return self._rpc(made, made.get_transport_class)

    @property
    def storage(self) -> sdk.storage.Client:
        """The client of Cloud Storage."""
        return self._once("storage", self._make_storage)

    def rest(self, made: Callable[..., C]) -> C:
        """Return the shared client of this class, which uses REST."""
        options = {"api_endpoint": self.endpoint} if self.endpoint else None

        def make() -> C:
            client = made(credentials=self.credentials, transport="rest", client_options=options)
            # Generated clients have no public name for their session.
            self._prepared(client.transport._session)  # type: ignore[attr-defined]  # noqa: SLF001
            return client

        return self._once(made, make)

    def call(self, method: Method[R, T], request: R) -> T:
        """Call a method of a client once, without retries.

        Args:
            method: of the client.
            request: the message of the method.

        Raises:
            google.api_core.exceptions.GoogleAPICallError: Google refuses the call.
            google.auth.exceptions.GoogleAuthError: there are no credentials, or Google does not accept them.
            requests.exceptions.RequestException: the REST endpoint cannot be reached.
        """
        return method(request=request, retry=None, timeout=_TIMEOUT_S)

    def read(self, method: Method[R, T], request: R) -> T:
        """Call a method that changes nothing, with retries of network errors and rate limits."""
        return self.repeat(lambda: self.call(method, request))

    def get(self, method: Method[R, T], request: R) -> T | None:
        """Read one resource; None if it does not exist or its API is not enabled."""
        return self.or_none(lambda: self.read(method, request))

    def rows(self, method: Method[R, Iterable[T]], request: R) -> list[T]:
        """Read all pages of a list; empty if its API is not enabled, so that no resource can exist."""
        return self.or_none(lambda: self.repeat(lambda: list(self.call(method, request)))) or []

    def repeat(self, work: Callable[[], T]) -> T:
        """Return the result of a read, with retries of network errors and rate limits."""
        return reading.read(work, again=errors.is_transient, speed=self.clock.speed)

    @staticmethod
    def or_none(work: Callable[[], T]) -> T | None:
        """Return the result of a read; None if the resource does not exist or its API is not enabled."""
        try:
            return work()
        except api.GoogleAPICallError as error:
            if errors.is_absent(error) or errors.is_disabled(error):
                return None
            raise

    def send(self, service: str, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON of any shape
        """Make one REST call to a service without a REST client, and return the JSON of the answer.

        Args:
            service: the first word of the service's host: "iam" for iam.googleapis.com.
            method: "GET", "POST", "PUT" or "DELETE".
            path: the path with its query, from the first slash on.
            body: the JSON to send; None for none.

        Raises:
            google.api_core.exceptions.GoogleAPICallError: Google refuses the call.
        """
        base = self.endpoint or f"https://{service}.googleapis.com"
        session = self._once("session", lambda: self._prepared(AuthorizedSession(self.credentials)))
        answer = session.request(method, f"{base}{path}", json=body, timeout=_TIMEOUT_S)
        if not answer.ok:
            raise api.from_http_response(answer)
        return safe_json(answer.content) if answer.content else {}

    def lock(self, name: str) -> threading.Lock:
        """Return the lock for a resource of this name that is read, edited and written back."""
        with self._lock:
            return self._locks.setdefault(name, threading.Lock())

    @property
    def endpoint(self) -> str:
        """The address for all REST calls; empty for each service's own address.

        Raises:
            SpecError: it is another machine's, without TLS: the calls carry the credential's token.
        """
        given = (self._environment.get(_REST) or "").rstrip("/")
        if given and not given.startswith("https://"):
            _require_loopback(_REST, given, urlsplit(given).netloc)
        return given

    def _prepared(self, session: AuthorizedSession) -> AuthorizedSession:
        """Let a session use the connections of all, and refuse answers that are not JSON; return it.

        Each generated client makes a session. A command opened more than a hundred connections with theirs,
        and Python closed them late.
        """
        for scheme in ("https://", "http://"):  # the second is a stand-in's
            session.mount(scheme, self._connections)
        session.hooks["response"].append(_refuse_foreign)
        return session

    def _once(self, name: object, make: Callable[[], C]) -> C:
        with self._lock:
            if name not in self._clients:
                self._clients[name] = make()
            return cast("C", self._clients[name])

    def _rpc(self, made: Callable[..., C], transport_of: Callable[[str], Callable[..., object]]) -> C:
        """Return the shared client of this class, which uses gRPC."""
        return self._once(made, lambda: self._make_rpc(made, transport_of))

    def _make_rpc(self, made: Callable[..., C], transport_of: Callable[[str], Callable[..., object]]) -> C:
        target = self._environment.get(_GRPC)
        if not target:
            return made(credentials=self.credentials, transport="grpc", client_options=None)
        _require_loopback(_GRPC, target, target)
        # gRPC refuses credentials on a channel without TLS, which an endpoint for tests has.
        channel = grpc.intercept_channel(grpc.insecure_channel(target), credentials.Bearer(self.credentials))
        return made(transport=transport_of("grpc")(channel=channel))

    def _make_storage(self) -> sdk.storage.Client:
        options: dict[str, object] | None = {"api_endpoint": self.endpoint} if self.endpoint else None
        client = sdk.storage.Client(
            project=self.project, credentials=self.credentials, client_options=options
        )
        self._prepared(client._http)  # type: ignore[attr-defined]  # noqa: SLF001 - as above
        return client


def _require_loopback(variable: str, value: str, host: str) -> None:
    """Raise SpecError if an address without TLS is not on this machine: it would get the token in clear."""
    name = urlsplit(f"//{host}").hostname or ""
    try:
        is_here = name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        is_here = False
    if not is_here:
        raise SpecError(
            f"{variable} is {value!r}: it would get the credential's token without encryption",
            remedy=f"unset {variable}; only a stand-in on this machine (127.0.0.1) may have no TLS",
        )


def _refuse_foreign(answer: Response, **_: object) -> None:
    """Raise UnreadableAnswerError for a page of a proxy, or an empty or damaged answer.

    Google's JSON APIs answer 200 with an object, which may be {}; 204 has no body. The content of a stored
    object (alt=media, /upload/) is no JSON.
    """
    if answer.status_code != _OK or "alt=media" in answer.url or "/upload/" in answer.url:
        return
    try:
        safe_json(answer.content, numbers="any")
    except ValueError as error:
        shown = answer.content[:_SHOWN].decode("utf-8", errors="replace")
        called = f"{answer.request.method} {answer.url.partition('?')[0]}"
        raise UnreadableAnswerError(f"{called} is answered with {shown!r}") from error
