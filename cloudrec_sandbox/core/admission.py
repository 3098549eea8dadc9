"""Which requests a stand-in answers: none from web pages, and on /_control only those that have its token.

A stand-in listens on the loopback of a machine where a browser runs, too. A page can send requests there, and
by DNS rebinding it can read the answers. So each request is refused whose Host is not this machine's loopback
or whose Origin is another site. /_control can end processes, so it also needs the token that the stand-in
draws at its start and announces to the user who started it.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_HEADER = "X-Cloudrec-Sandbox-Token"  # noqa: S105 - a header's name
TOKEN_VARIABLE = "CLOUDREC_SANDBOX_TOKEN"  # noqa: S105 - a variable's name
LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
_JSON = "application/json"
_PORTS = {"http": 80, "https": 443}  # a Host header leaves out its scheme's default port


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a request is not answered: an HTTP status and a message."""

    status: HTTPStatus
    message: str


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Decides which requests one server answers.

    Attributes:
        scheme: http or https.
        port: the server's port.
        token: the token that a request to /_control must have.
    """

    scheme: str
    port: int
    token: str = field(default_factory=secrets.token_urlsafe, repr=False)

    def refusal(self, headers: Mapping[str, str]) -> Refusal | None:
        """Return why a request to the service itself is refused; None if it is answered.

        Args:
            headers: the request's headers, with lower-case names.
        """
        host, origin = headers.get("host", ""), headers.get("origin")
        # S3's clients put the bucket in front of a host's name. Browsers never ask DNS for *.localhost.
        if not self._is_ours(host, buckets=True):
            return self._misdirected(host)
        return None if origin is None else self._foreign(origin)

    def control_refusal(self, method: str, headers: Mapping[str, str]) -> Refusal | None:
        """Return why a request to /_control is refused; None if it is answered."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return self._misdirected(host)
        if refusal := self.refusal(headers):
            return refusal
        # The time that `compare_digest` takes says nothing of how much of the token is right.
        given = headers.get(TOKEN_HEADER.lower(), "")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return Refusal(
                status=HTTPStatus.UNAUTHORIZED,
                message=f"/_control needs the header {TOKEN_HEADER} with the token that the stand-in "
                f"announced as {TOKEN_VARIABLE}",
            )
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        # A page may send a form to another site directly; JSON needs a preflight, which is never answered.
        if method != "GET" and content_type != _JSON:
            return Refusal(
                status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                message=f"the Content-Type is {content_type or 'missing'}; /_control takes {_JSON} only",
            )
        return None

    def _foreign(self, origin: str) -> Refusal | None:
        scheme, _, host = origin.partition("://")
        if scheme == self.scheme and self._is_ours(host):
            return None
        return Refusal(
            status=HTTPStatus.FORBIDDEN,
            message=f"the request comes from the site {origin!r}; a stand-in serves no other site's pages",
        )

    def _misdirected(self, host: str) -> Refusal:
        return Refusal(
            status=HTTPStatus.MISDIRECTED_REQUEST,
            message=f"the Host is {host!r}; this server is 127.0.0.1:{self.port}",
        )

    def _is_ours(self, host: str, *, buckets: bool = False) -> bool:
        """Return whether a Host header names this machine's loopback and this server's port."""
        try:
            parts = urlsplit(f"//{host}")
            port = parts.port or _PORTS[self.scheme]
        except ValueError:
            return False
        name = parts.hostname or ""
        # The whole text must be host:port, so that a user name or a path in it hides no other host.
        is_loopback = name in LOOPBACK or (buckets and name.endswith(".localhost"))
        return is_loopback and port == self.port and parts.netloc == host and "@" not in host
