"""Sends requests to an API server by the official SDK, with time limits, retries and readable errors."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

import stamina

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.client.errors import (
    ApiUnreachableError,
    DeniedError,
    ErrorResponse,
    KubeError,
    OverloadedError,
    error_of,
)
from cloudrec.kubernetes.client.kinds import check_answer
from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from cloudrec.kubernetes.client.credentials import Kubeconfig

T = TypeVar("T")
CONNECT_S, PATIENCE_S = 10.0, 45.0
_READ_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_SILENT_S = 10.0  # for which a server that did not answer is not asked by a brief reading
_brief: ContextVar[float | None] = ContextVar("brief", default=None)
# By server that did not answer: when the last call was given up, and the error of its connection.
_silent: dict[str, tuple[float, str]] = {}
_GOOD = range(200, 300)
_UNAUTHORIZED = 401
_BODY_LIMIT = 64 * 1024  # bytes of an error's body, and of one read of a stream
_PATCHES = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}

# Kubernetes API concepts, "Metadata-only fetches"; a server that knows none answers with whole objects.
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"

# stamina logs each retry; without a handler, logging would print that to stderr.
logging.getLogger("stamina").addHandler(logging.NullHandler())
_LOG = logging.getLogger(__name__)
# RFC 7234 5.5: a code (299 of Kubernetes), an agent ("-") and a text in quotes; commas separate several.
_WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, kw_only=True)
class ApiRequest:
    """One call of the API.

    Attributes:
        method: GET, POST, PATCH, DELETE.
        path: the path below the server's address.
        what: the call as text for messages: "list pods".
        query: the query parameters; those that are None are left out.
        body: the body, sent as JSON.
        patch: the kind of patch: apply, merge, json, strategic; empty for none.
        is_idempotent: whether a second call has no further effect.
        is_long: whether to request a compressed response.
        metadata_only: whether the response has only the metadata of its objects.
        form: "object" if the response is one that has a name, "list" if it is a list of such.
        read_s: seconds without data after which the call fails.
        is_stream: whether the response is read line by line, such as a log or a watch.
    """

    method: str
    path: str
    what: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    patch: str = ""
    is_idempotent: bool = False
    is_long: bool = False
    metadata_only: bool = False
    form: str = ""
    read_s: float = _READ_S
    is_stream: bool = False


@contextmanager
def brief(seconds: float) -> Iterator[None]:
    """Limit the patience of this thread's calls: a user waits for the view that they make.

    If a server has not answered in that time, further brief calls to it fail at once for ten seconds. So a
    list of many runs takes as long as one of them.
    """
    token = _brief.set(seconds)
    try:
        yield
    finally:
        _brief.reset(token)


def warnings_in(header: str) -> list[str]:
    """Return the texts in a Warning header's value."""
    return [re.sub(r"\\(.)", r"\1", text) for text in _WARNING.findall(header)]


class Wire:
    """Connections to one API server; safe for several threads."""

    def __init__(
        self,
        kubeconfig: Kubeconfig,
        *,
        patience_s: float = PATIENCE_S,
        connect_s: float = CONNECT_S,
        read_s: float | None = None,
    ) -> None:
        """Return a client that connects at its first call.

        Args:
            kubeconfig: address and credential of the server.
            patience_s: seconds for which a request is retried, if a retry can do no harm.
            connect_s: time limit for a connection, in seconds.
            read_s: seconds without data after which any call fails; None for each request's own limit.
        """
        self.kubeconfig = kubeconfig
        self._patience_s = patience_s
        self._connect_s = connect_s
        self._read_s = read_s
        self._lock = threading.Lock()
        self._client: Any = None
        self._warned: set[str] = set()
        self._ahead_s = 0.0  # of the server's clock, beyond this machine's

    def now_s(self) -> float:
        """Return the time of the server's clock in seconds since the epoch, as of its last response."""
        return time.time() + self._ahead_s

    def json(self, request: ApiRequest) -> dict[str, Any]:
        """Return the server's response; the request is retried if that can do no harm."""
        return self._patiently(request, lambda: self._json(request))

    @contextmanager
    def stream(self, request: ApiRequest) -> Iterator[Iterable[bytes]]:
        """Yield the response's lines as they arrive, until the block ends. Only its start is retried."""
        request = replace(request, is_stream=True)
        response = self._patiently(request, lambda: self._opened(request))
        try:
            yield _Lines(response.response, lambda: self._errors(request, was_sent=True))
        finally:
            response.response.close()

    def websocket(self, path: str, *, what: str, protocols: Sequence[str]) -> Any:  # noqa: ANN401 - untyped
        """Return a WebSocket of websocket-client; the credential is renewed once.

        Args:
            path: the path below the server's address, with its query.
            what: the call as text for messages.
            protocols: the subprotocols, the best first.

        Raises:
            KubeError: the server refuses.
            ApiUnreachableError: it does not answer, or something on the way knows no WebSockets.
        """
        try:
            return self._websocket(path, what, protocols, self._connected())
        except KubeError as error:
            if error.status != _UNAUTHORIZED:
                raise
            return self._websocket(path, what, protocols, self._connected(renewed=True))

    def _websocket(self, path: str, what: str, protocols: Sequence[str], client: Any) -> Any:  # noqa: ANN401 - untyped
        from websocket import WebSocketBadStatusException, WebSocketException  # noqa: PLC0415 - in the extra

        from cloudrec.kubernetes.client import websockets  # noqa: PLC0415 - only for these calls

        url = client.configuration.host.rstrip("/") + path
        try:
            return websockets.opened(
                client.configuration,
                url,
                host=self.kubeconfig.host,
                protocols=protocols,
                connect_s=self._connect_s,
            )
        except WebSocketBadStatusException as error:
            raise error_of(
                ErrorResponse(
                    status=error.status_code,
                    body=error.resp_body or b"",
                    retry_after=None,
                    what=what,
                    server=self.kubeconfig.server,
                )
            ) from error
        except (WebSocketException, OSError) as error:
            raise websockets.unreachable(what, self.kubeconfig.server, error) from error

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._client is not None:
                self._client.rest_client.close()
                self._client.close()
                self._client = None

    def _patiently(self, request: ApiRequest, work: Callable[[], T]) -> T:
        limit_s, server = _brief.get(), self.kubeconfig.server
        since, why = _silent.get(server, (-math.inf, ""))
        if limit_s is not None and time.monotonic() - since < _SILENT_S:
            raise self._unreachable(request, why, was_sent=False)
        patience_s = self._patience_s if limit_s is None else min(limit_s, self._patience_s)
        try:
            found = self._retried(request, work, patience_s)
        except ApiUnreachableError as error:
            # A stream's pod may be on a node that is dead, while the API server works.
            if error.silence and not request.is_stream:
                _silent[server] = time.monotonic(), error.silence
            raise
        _silent.pop(server, None)
        return found

    def _retried(self, request: ApiRequest, work: Callable[[], T], patience_s: float) -> T:
        for attempt in stamina.retry_context(
            on=lambda error: _again(error, request),
            attempts=None,
            timeout=patience_s,
            wait_initial=_FIRST_PAUSE_S,
            wait_max=min(_LONGEST_PAUSE_S, patience_s / 4),  # the last pause may exceed the time
            wait_jitter=_FIRST_PAUSE_S,
        ):
            with attempt:
                return work()
        raise AssertionError("stamina ends its loop by returning or raising")

    def _opened(self, request: ApiRequest) -> Any:  # noqa: ANN401 - the SDK's response, which is not typed
        with self._errors(request, was_sent=False):
            return self._send(request)

    def _json(self, request: ApiRequest) -> dict[str, Any]:
        response = self._opened(request)
        with self._errors(request, was_sent=True):
            data = response.response.read(decode_content=True)
            response.response.release_conn()
        try:
            document = safe_json(data) if data.strip() else {}
            check_answer(document, request.path, request.form)
        except ValueError as error:  # a proxy's page, or an answer that was damaged on its way
            raise ApiUnreachableError(
                f"cannot {request.what}: the answer is not of an API server: {error}", was_sent=True
            ) from error
        return document if isinstance(document, dict) else {"value": document}

    def _send(self, request: ApiRequest) -> Any:  # noqa: ANN401 - the SDK's response, which is not typed
        """Return a successful response; raise the error of any other. The credential is renewed once."""
        response = self._once(request, self._connected())
        if response.status == _UNAUTHORIZED:
            response.response.drain_conn()  # so that the connection can be used again
            response = self._once(request, self._connected(renewed=True))
        if response.status in _GOOD:
            self._show_warnings(response.headers)
            self._note_time(response.headers)
            return response
        body = response.response.read(_BODY_LIMIT, decode_content=True)
        response.response.close()
        raise error_of(
            ErrorResponse(
                status=response.status,
                body=body,
                retry_after=response.headers.get("Retry-After"),
                what=request.what,
                server=self.kubeconfig.server,
            )
        )

    def _note_time(self, headers: Mapping[str, str]) -> None:
        if date := headers.get("Date"):
            with suppress(ValueError):
                self._ahead_s = parsedate_to_datetime(date).timestamp() - time.time()

    def _show_warnings(self, headers: Mapping[str, str]) -> None:
        """Log each warning once, such as of a deprecated version, an ignored field or pod security."""
        for text in warnings_in(headers.get("Warning") or ""):
            if text not in self._warned:
                self._warned.add(text)
                _LOG.warning("the API server warns: %s", text)

    def _once(self, request: ApiRequest, client: Any) -> Any:  # noqa: ANN401 - the SDK's own, which are not typed
        headers = {"Accept": _METADATA if request.metadata_only else "application/json, */*"}
        if request.is_long:
            headers["Accept-Encoding"] = "gzip"
        if request.body is not None:
            headers["Content-Type"] = _PATCHES.get(request.patch, "application/json")
        serialized = client.param_serialize(
            request.method,
            request.path,
            query_params=[(key, _text(value)) for key, value in request.query.items() if value is not None],
            header_params=headers,
            auth_settings=["BearerToken"],
        )
        method, url, sent_headers, _, _ = serialized
        # `call_api` sends the body unchanged: the conversion of the SDK's models would cost time.
        limits = (self._connect_s, request.read_s if self._read_s is None else self._read_s)
        return client.call_api(method, url, sent_headers, request.body, None, _request_timeout=limits)

    def _connected(self, *, renewed: bool = False) -> Any:  # noqa: ANN401 - the SDK's client, which is not typed
        with self._lock:
            if self._client is None or renewed or self.kubeconfig.is_stale:
                configuration = self.kubeconfig.configuration()
                from kubernetes import client  # noqa: PLC0415 - an extra, there since it configured itself

                self._client = client.ApiClient(configuration)
                self._client.user_agent = "cloudrec"
                if self.kubeconfig.host:  # of the server, where the connection is to the end of a tunnel
                    self._client.set_default_header("Host", self.kubeconfig.host)
            return self._client

    @contextmanager
    def _errors(self, request: ApiRequest, *, was_sent: bool) -> Iterator[None]:
        """Turn errors of the connection into an ApiUnreachableError."""
        try:
            yield
        except (KubeError, PreflightError):
            raise
        except Exception as error:
            raise self._connection_error(error, request, was_sent=was_sent) from error

    def _connection_error(self, error: Exception, request: ApiRequest, *, was_sent: bool) -> Exception:
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415 - an extra
        from urllib3 import exceptions as found  # noqa: PLC0415 - comes with the extra

        server, what = self.kubeconfig.server, request.what
        if isinstance(error, ApiException | found.SSLError):
            return ApiUnreachableError(
                f"cannot {what}: the certificate of {server} is not trusted: {_last_line(error)}",
                remedy="check that it is still the same cluster; `cloudrec up` reads its authority again",
            )
        if not isinstance(error, found.HTTPError | OSError):
            return error
        # With these errors there was no connection, so the server has not seen the request.
        unsent = (found.NewConnectionError, found.ConnectTimeoutError, found.NameResolutionError)
        sent = was_sent or not isinstance(error, unsent)
        return self._unreachable(request, _last_line(error), was_sent=sent)

    def _unreachable(self, request: ApiRequest, why: str, *, was_sent: bool) -> ApiUnreachableError:
        return ApiUnreachableError(
            f"cannot {request.what}: the API server {self.kubeconfig.server} does not answer: {why}",
            remedy="check the network: a private endpoint is reached only from inside its network, any other "
            "from the addresses that `cloudrec up` was given; `cloudrec doctor --cluster NAME` shows which",
            was_sent=was_sent,
            silence=why,
        )


class _Lines:
    """The lines of a response, as bytes."""

    def __init__(self, response: Any, errors: Callable[[], AbstractContextManager[None]]) -> None:  # noqa: ANN401 - urllib3's, which is not typed here
        self._response = response
        self._errors = errors

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        with self._errors():
            for block in self._blocks():
                *lines, rest = (rest + block).split(b"\n")
                yield from lines
        if rest:
            yield rest

    def _blocks(self) -> Iterator[bytes]:
        """Yield the data as it arrives, without waiting for a full block."""
        if self._response.chunked:
            yield from self._response.stream(amt=None, decode_content=True)
        else:
            while block := self._response.read1(_BODY_LIMIT, decode_content=True):
                yield block


def _again(error: Exception, request: ApiRequest) -> bool | float:
    """Return whether a request may be retried, or the seconds to wait before, if the server names them."""
    harmless = request.method == "GET" or request.is_idempotent
    if isinstance(error, ApiUnreachableError):
        is_trust = "not trusted" in error.message
        return not is_trust and (harmless or not error.was_sent)
    if isinstance(error, DeniedError) or not isinstance(error, OverloadedError):
        return False
    if not (harmless or error.had_no_effect):
        return False
    return error.wait_s if error.wait_s is not None else True


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _last_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[-1][-300:]
