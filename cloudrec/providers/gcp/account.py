"""The credential of all clients: they share it, so that one token serves them all."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google.auth
import grpc
from google.auth.credentials import Credentials
from google.auth.transport.requests import Request
from google.oauth2 import service_account

from cloudrec.errors import PreflightError
from cloudrec.home import read_text
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
_FILE = "GOOGLE_APPLICATION_CREDENTIALS"


class Shared(Credentials):
    """A credential whose token all clients share.

    With a service account's own credential, each client would sign its own tokens.
    """

    token: Any  # untyped in Google's base class
    expiry: Any

    def __init__(self, inner: Credentials) -> None:
        super().__init__()
        self.inner = inner
        self._refreshing = threading.Lock()

    @property
    def name(self) -> str:
        """The caller's e-mail address; empty if the credential does not name it."""
        return str(
            getattr(self.inner, "service_account_email", "") or getattr(self.inner, "account", "") or ""
        )

    def refresh(self, request: Request) -> None:
        """Fetch a token, unless another thread has just done so."""
        with self._refreshing:
            # Another thread may have fetched a new token while this one waited for the lock.
            if not self.inner.valid or self.inner.token == self.token:
                self.inner.refresh(request)
            self.token, self.expiry = self.inner.token, self.inner.expiry

    def apply(self, headers: MutableMapping[str, str], token: str | None = None) -> None:
        """Add the token to the headers, and the quota project if the credential names one."""
        self.inner.apply(headers, token or self.token)


class Bearer(grpc.UnaryUnaryClientInterceptor):
    """Sends the token on a channel without TLS, which gRPC itself refuses; for endpoints of tests."""

    def __init__(self, credentials: Shared) -> None:
        self._credentials = credentials

    def intercept_unary_unary(self, continuation: Any, call: Any, request: Any) -> Any:  # noqa: ANN401 - gRPC's own
        """Add the token to the call's metadata, as the SDK does on a channel with TLS."""
        headers: dict[str, str] = {}
        self._credentials.before_request(Request(), "POST", call.method, headers)
        metadata = [*(call.metadata or ()), *((name.lower(), value) for name, value in headers.items())]
        return continuation(_Call(call, metadata), request)


class _Call(grpc.ClientCallDetails):
    """The details of a call, with other metadata."""

    def __init__(self, call: Any, metadata: list[tuple[str, str]]) -> None:  # noqa: ANN401 - gRPC's own
        self.method, self.timeout, self.metadata = call.method, call.timeout, metadata
        self.credentials = call.credentials
        self.wait_for_ready = getattr(call, "wait_for_ready", None)
        self.compression = getattr(call, "compression", None)


def load(environment: Mapping[str, str]) -> tuple[Shared, str]:
    """Return the credential of the environment and its project's id, which is empty if it names none.

    Raises:
        PreflightError: GOOGLE_APPLICATION_CREDENTIALS names a file that is no key or configuration.
        google.auth.exceptions.DefaultCredentialsError: no credentials were found.
    """
    path = environment.get(_FILE)
    if path:
        try:
            key = safe_object(read_text(Path(path)))
            if key["type"] == "service_account":
                inner = service_account.Credentials.from_service_account_info(key, scopes=_SCOPES)
                return Shared(inner), str(inner.project_id or "")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PreflightError(
                f"{_FILE} names {path}, which is not a credentials file: {error}",
                remedy=f"set {_FILE} to a key or configuration file, or unset it and run "
                "`gcloud auth application-default login`",
            ) from error
    # The SDK searches the environment of this process: a gcloud login, or the identity of the machine or pod.
    inner, project = google.auth.default(scopes=_SCOPES)
    return Shared(inner), str(project or "")
