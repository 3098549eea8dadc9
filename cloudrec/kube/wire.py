"""One request to an API server by the official SDK: time-outs, what may be sent again, errors in words."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import stamina

from cloudrec.errors import PreflightError
from cloudrec.kube.errors import Answer, DeniedError, KubeError, OverloadedError, UnreachableError, error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from cloudrec.kube.credentials import Kubeconfig

T = TypeVar("T")
_CONNECT_S, _READ_S = 10.0, 60.0
PATIENCE_S = 45.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_GOOD = range(200, 300)
_UNAUTHORIZED = 401
_BODY_LIMIT = 64 * 1024  # of an error
_PATCHES = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}

# A call that is made again is no news to a person; without a handler, logging writes it to stderr.
logging.getLogger("stamina").addHandler(logging.NullHandler())


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call.

    Attributes:
        method: GET, POST, PATCH, DELETE.
        path: below the server's address.
        what: what is asked, for a person: "list pods".
        query: parameters.
        body: what is sent as JSON.
        patch: which kind of patch it is: apply, merge, json, strategic; empty for none.
        is_idempotent: whether doing it twice is as good as once.
        is_long: whether the answer may be so long that it had better come compressed.
        read_s: seconds that the server may be silent.
    """

    method: str
    path: str
    what: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    patch: str = ""
    is_idempotent: bool = False
    is_long: bool = False
    read_s: float = _READ_S


class Wire:
    """Connections to one API server; safe for several threads."""

    def __init__(self, kubeconfig: Kubeconfig, *, patience_s: float = PATIENCE_S) -> None:
        """`patience_s` is for how many seconds a request is made again where that can do no harm."""
        self.kubeconfig = kubeconfig
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._client: Any = None

    def json(self, request: Request) -> dict[str, Any]:
        """Return the server's answer; asked again where that can do no harm."""
        return self._patiently(request, lambda: self._json(request))

    @contextmanager
    def stream(self, request: Request) -> Iterator[Iterable[bytes]]:
        """Give the answer's lines as they come; closed with the block. Only the beginning is tried again."""
        response = self._patiently(request, lambda: self._opened(request))
        try:
            yield _Lines(response.response, lambda: self._errors(request, was_sent=True))
        finally:
            response.response.close()

    def close(self) -> None:
        """End the connections."""
        with self._lock:
            if self._client is not None:
                self._client.rest_client.close()
                self._client.close()
                self._client = None

    def _patiently(self, request: Request, work: Callable[[], T]) -> T:
        for attempt in stamina.retry_context(
            on=lambda error: _again(error, request),
            attempts=None,
            timeout=self._patience_s,
            wait_initial=_FIRST_PAUSE_S,
            wait_max=_LONGEST_PAUSE_S,
            wait_jitter=_FIRST_PAUSE_S,
        ):
            with attempt:
                return work()
        raise AssertionError("stamina ends its loop by returning or raising")

    def _opened(self, request: Request) -> Any:  # noqa: ANN401 - the SDK's response, which is not typed
        with self._errors(request, was_sent=False):
            return self._send(request)

    def _json(self, request: Request) -> dict[str, Any]:
        response = self._opened(request)
        with self._errors(request, was_sent=True):
            data = response.response.read(decode_content=True)
            response.response.release_conn()
        document = json.loads(data) if data.strip() else {}
        return document if isinstance(document, dict) else {"value": document}

    def _send(self, request: Request) -> Any:  # noqa: ANN401 - the SDK's response, which is not typed
        """Return the server's answer if it is a good one; a credential that has ended is renewed once."""
        response = self._once(request, self._connected())
        if response.status == _UNAUTHORIZED:
            response.response.drain_conn()
            response = self._once(request, self._connected(anew=True))
        if response.status in _GOOD:
            return response
        body = response.response.read(_BODY_LIMIT, decode_content=True)
        response.response.close()
        raise error_of(
            Answer(
                status=response.status,
                body=body,
                retry_after=response.headers.get("Retry-After"),
                what=request.what,
                server=self.kubeconfig.server,
            )
        )

    def _once(self, request: Request, client: Any) -> Any:  # noqa: ANN401 - the SDK's own, which are not typed
        headers = {"Accept": "application/json, */*"}
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
        # A list of operations or an object goes as it is: the SDK's own conversion of models costs time.
        return client.call_api(
            method, url, sent_headers, request.body, None, _request_timeout=(_CONNECT_S, request.read_s)
        )

    def _connected(self, *, anew: bool = False) -> Any:  # noqa: ANN401 - the SDK's client, which is not typed
        with self._lock:
            if self._client is None or anew or self.kubeconfig.is_stale:
                configuration = self.kubeconfig.configuration()
                from kubernetes import client  # noqa: PLC0415 - an extra, there since it configured itself

                self._client = client.ApiClient(configuration)
                self._client.user_agent = "cloudrec"
            return self._client

    @contextmanager
    def _errors(self, request: Request, *, was_sent: bool) -> Iterator[None]:
        """Turn what goes wrong on the way into an UnreachableError."""
        try:
            yield
        except (KubeError, PreflightError):
            raise
        except Exception as error:
            raise self._on_the_way(error, request, was_sent=was_sent) from error

    def _on_the_way(self, error: Exception, request: Request, *, was_sent: bool) -> Exception:
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415 - an extra
        from urllib3 import exceptions as found  # noqa: PLC0415 - comes with the extra

        server, what = self.kubeconfig.server, request.what
        if isinstance(error, ApiException | found.SSLError):
            return UnreachableError(
                f"cannot {what}: the certificate of {server} is not trusted: {_last_line(error)}",
                remedy="is it still the same cluster? `cloudrec up` on it fetches its authority anew",
            )
        if not isinstance(error, found.HTTPError | OSError):
            return error
        never = (found.NewConnectionError, found.ConnectTimeoutError, found.NameResolutionError)
        sent = was_sent or not isinstance(error, never)
        return UnreachableError(
            f"cannot {what}: the API server {server} does not answer: {_last_line(error)}",
            remedy="check the network; a private endpoint is reached only from inside its network, or from "
            "the addresses that `cloudrec up` was given; `cloudrec doctor` tells which",
            was_sent=sent,
        )


class _Lines:
    """The bytes of an answer, line by line."""

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
        """Yield what has come, without waiting for more."""
        if self._response.chunked:
            yield from self._response.stream(amt=None, decode_content=True)
        else:
            while block := self._response.read1(_BODY_LIMIT, decode_content=True):
                yield block


def _again(error: Exception, request: Request) -> bool | float:
    """Tell whether a request may be sent again, and after how many seconds where the server names them."""
    harmless = request.method == "GET" or request.is_idempotent
    if isinstance(error, UnreachableError):
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
    said = str(error).strip() or type(error).__name__
    return said.splitlines()[-1][-300:]
