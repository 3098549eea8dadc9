"""Whose calls they are: one credential for all clients, so that a token is fetched once and not by each."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google.auth
import grpc
from google.auth.credentials import Credentials
from google.auth.transport.requests import Request
from google.oauth2 import service_account

from cloudrec.errors import PreflightError

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
_FILE = "GOOGLE_APPLICATION_CREDENTIALS"


class Shared(Credentials):  # type: ignore[misc]  # the SDK is seen as Any
    """What all clients present: the tokens of one credential.

    Were a service account's own credential given to each client, each would sign tokens of its own.
    """

    token: Any

    def __init__(self, inner: Any) -> None:  # noqa: ANN401 - the SDK is seen as Any
        super().__init__()
        self.inner = inner
        self._refreshing = threading.Lock()

    @property
    def name(self) -> str:
        """Who it is, as far as the credential tells: an e-mail address, or nothing."""
        return str(
            getattr(self.inner, "service_account_email", "") or getattr(self.inner, "account", "") or ""
        )

    def refresh(self, request: Any) -> None:  # noqa: ANN401 - the SDK is seen as Any
        """Fetch a token, unless another thread has just done so."""
        with self._refreshing:
            if not self.inner.valid or self.inner.token == self.token:
                self.inner.refresh(request)
            self.token, self.expiry = self.inner.token, self.inner.expiry

    def apply(self, headers: MutableMapping[str, str], token: str | None = None) -> None:
        """Write the token, and who pays for the calls where the credential tells."""
        self.inner.apply(headers, token or self.token)


class Bearer(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # the SDK is seen as Any
    """Presents the token on a channel that is not encrypted, where gRPC itself refuses to: a stand-in's."""

    def __init__(self, credentials: Shared) -> None:
        self._credentials = credentials

    def intercept_unary_unary(self, continuation: Any, call: Any, request: Any) -> Any:  # noqa: ANN401 - gRPC's own
        """Add the header that the SDK would."""
        headers: dict[str, str] = {}
        self._credentials.before_request(Request(), "POST", call.method, headers)
        metadata = [*(call.metadata or ()), *((name.lower(), value) for name, value in headers.items())]
        return continuation(_Call(call, metadata), request)


class _Call(grpc.ClientCallDetails):  # type: ignore[misc]  # the SDK is seen as Any
    """A call as it was, with other metadata."""

    def __init__(self, call: Any, metadata: list[tuple[str, str]]) -> None:  # noqa: ANN401 - gRPC's own
        self.method, self.timeout, self.metadata = call.method, call.timeout, metadata
        self.credentials = call.credentials
        self.wait_for_ready = getattr(call, "wait_for_ready", None)
        self.compression = getattr(call, "compression", None)


def load(environment: Mapping[str, str]) -> tuple[Shared, str]:
    """Return the environment's credential, and the project that it names; empty where it names none.

    Raises:
        PreflightError: the file that GOOGLE_APPLICATION_CREDENTIALS names cannot be read.
        google.auth.exceptions.DefaultCredentialsError: there are no credentials.
    """
    path = environment.get(_FILE)
    if path:
        try:
            told = json.loads(Path(path).read_text(encoding="utf-8"))
            if told["type"] == "service_account":
                inner = service_account.Credentials.from_service_account_info(told, scopes=_SCOPES)
                return Shared(inner), str(inner.project_id or "")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PreflightError(
                f"{_FILE} names {path}, which holds no credentials: {error}",
                remedy=f"set {_FILE} to a key or configuration file, or unset it and "
                "`gcloud auth application-default login`",
            ) from error
    # What the SDK finds by itself, in the process's own environment: a log-in, a workload's identity.
    inner, project = google.auth.default(scopes=_SCOPES)
    return Shared(inner), str(project or "")
