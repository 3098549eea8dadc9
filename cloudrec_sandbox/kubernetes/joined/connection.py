"""Calls to an API server, with the credential of a kubeconfig: a client certificate or a token."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from cloudrec.errors import UsageError
from cloudrec.safe_yaml import safe_yaml
from cloudrec_sandbox.kubernetes.objects.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PATIENCE_S = 60.0
_WATCH_S = 300
_REFUSED = 400
_LARGEST = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A reply: its status, its headers as they came, and its JSON (None if it is not JSON)."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: Any = None


class Connection:
    """Connections to one API server, one for each thread."""

    def __init__(self, kubeconfig: Path, context: str = "", *, agent: str = "kubelet") -> None:
        """Read the kubeconfig; UsageError for a context or a credential that cannot be used.

        `agent` is what the API server records as the manager of the fields that it changes.
        """
        text = kubeconfig.read_text(encoding="utf-8")
        document: Any = safe_yaml(text, where=str(kubeconfig), error=UsageError, most=_LARGEST).value
        named = _named(document, "contexts", context or document.get("current-context", ""))["context"]
        cluster = _named(document, "clusters", named["cluster"])["cluster"]
        user = _named(document, "users", named["user"])["user"]
        self.server = str(cluster["server"])
        self.authority = _pem(cluster, "certificate-authority")
        self._token = str(user.get("token") or "")
        self._place = urlsplit(self.server)
        self._tls = ssl.create_default_context(cadata=self.authority or None)
        if not self._token:
            self._present(_pem(user, "client-certificate"), _pem(user, "client-key"), kubeconfig)
        self._agent = agent
        self._own = threading.local()
        self._lines: set[http.client.HTTPSConnection] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,  # noqa: ANN401 - JSON, or bytes as they are
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return the reply to one call, whatever its status."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        whole = f"{path}?{urlencode(query)}" if query else path
        sent = {**self._headers(), **({"Content-Type": kind} if data is not None else {}), **(headers or {})}
        for is_last in (False, True):
            line = self._connected()
            try:
                line.request(method, whole, data, sent)
                response = line.getresponse()
                text = response.read()
            except (http.client.HTTPException, OSError):
                # The server ends idle connections: the first call on one then fails.
                self._hang_up()
                if is_last:
                    raise
            else:
                return Answer(status=response.status, headers=response.getheaders(), body=_read(text))
        raise AssertionError("the loop returns or raises")

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,  # noqa: ANN401 - JSON
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return the object of a reply; ApiError for a refusal."""
        answer = self.ask(method, path, body=body, kind=kind, query=query)
        document = answer.body if isinstance(answer.body, dict) else {}
        if answer.status >= _REFUSED:
            reason, message = str(document.get("reason", "")), str(document.get("message", ""))
            raise ApiError(answer.status, reason, message, details=document.get("details"))
        return document

    @contextmanager
    def watch(self, path: str, query: Mapping[str, str]) -> Iterator[Iterator[dict[str, Any]]]:
        """Yield the events of a watch until it ends; `close` ends it, too."""
        line = self._dial(_WATCH_S)
        try:
            asked = {**query, "watch": "true", "timeoutSeconds": str(_WATCH_S - 30)}
            line.request("GET", f"{path}?{urlencode(asked)}", headers=self._headers())
            response = line.getresponse()
            if response.status >= _REFUSED:
                raise ApiError(response.status, "", response.read(_LARGEST).decode(errors="replace"))
            yield (json.loads(text) for text in response if text.strip())
        finally:
            self._drop(line)

    def close(self) -> None:
        """Close every thread's connection; watches end."""
        with self._lock:
            self._is_closed = True
            lines = list(self._lines)
        for line in lines:
            if line.sock is not None:
                with suppress(OSError):  # it wakes the thread that reads from it
                    line.sock.shutdown(socket.SHUT_RDWR)
            self._drop(line)

    def _headers(self) -> dict[str, str]:
        usual = {"Accept": "application/json", "User-Agent": f"{self._agent}/sandbox"}
        return {**usual, "Authorization": f"Bearer {self._token}"} if self._token else usual

    def _dial(self, patience_s: float) -> http.client.HTTPSConnection:
        host, port = self._place.hostname or "", self._place.port or 443
        line = http.client.HTTPSConnection(host, port, context=self._tls, timeout=patience_s)
        with self._lock:
            if self._is_closed:
                raise ConnectionError("the connection to the API server is closed")
            self._lines.add(line)
        return line

    def _drop(self, line: http.client.HTTPSConnection) -> None:
        line.close()
        with self._lock:
            self._lines.discard(line)

    def _connected(self) -> http.client.HTTPSConnection:
        line: http.client.HTTPSConnection | None = getattr(self._own, "line", None)
        if line is None:
            line = self._own.line = self._dial(_PATIENCE_S)
        return line

    def _hang_up(self) -> None:
        line: http.client.HTTPSConnection | None = getattr(self._own, "line", None)
        if line is not None:
            self._drop(line)
            self._own.line = None

    def _present(self, certificate: str, key: str, kubeconfig: Path) -> None:
        if not certificate or not key:
            raise UsageError(
                f"the user in {kubeconfig} has neither a token nor a client certificate with its key",
                remedy="nodes join with a kubeconfig that has one of them, such as an administrator's",
            )
        with TemporaryDirectory() as folder:
            path = Path(folder) / "client.pem"
            path.touch(mode=0o600)
            path.write_text(f"{certificate}\n{key}", encoding="utf-8")
            self._tls.load_cert_chain(path)


def _named(document: Mapping[str, Any], section: str, name: str) -> dict[str, Any]:
    for each in document.get(section) or ():
        if each.get("name") == name:
            found: dict[str, Any] = each
            return found
    raise UsageError(f"the kubeconfig has no {section[:-1]} named {name!r}", remedy="name one that it has")


def _pem(entry: Mapping[str, Any], name: str) -> str:
    if data := entry.get(f"{name}-data"):
        return base64.b64decode(data).decode()
    path = entry.get(name)
    return Path(path).read_text(encoding="utf-8") if path else ""


def _read(text: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace") if text else None
