"""Who may talk to the live page: the browser that opened the link, and no page of another site.

The server listens on the loopback address. Every user and every web page of this machine reaches that, so:

- a request needs the cookie, which the browser gets for the random token in the link;
- the header Host must name this server, so that no name of another site can lead here (DNS rebinding);
- a request that changes something must come from a page of this server, and repeat a token of its form.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

from starlette.datastructures import URL, Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "token"  # noqa: S105 - the name of the parameter
_SAFE = ("GET", "HEAD")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with no-referrer, forms would have the origin "null"
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """The random values of one server.

    Attributes:
        port: its port.
        token: that in the link.
        session: the value of the cookie, which a browser gets for the token.
        form: that in each form.
    """

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    form: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def cookie(self) -> str:
        """The name of the cookie; browsers do not keep those of two ports apart."""
        return f"cloudrec-{self.port}"

    @property
    def link(self) -> str:
        """The link that opens the page."""
        return f"http://127.0.0.1:{self.port}/?{TOKEN}={self.token}"

    def is_form(self, given: object) -> bool:
        """Return whether a form has the token of its kind."""
        return isinstance(given, str) and secrets.compare_digest(given.encode(), self.form.encode())


class Doorkeeper:
    """Lets a request through to the application only if it may be there."""

    def __init__(self, app: ASGIApp, *, keys: Secrets) -> None:
        self._app = app
        self._keys = keys
        self._hosts = {f"127.0.0.1:{keys.port}", f"localhost:{keys.port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """Return the answer to a request that goes no further; None if it may."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host not in self._hosts:
            return PlainTextResponse("this address is not that of the page: use 127.0.0.1", 421)
        if scope["method"] not in _SAFE and not _is_from_here(headers, host):
            return PlainTextResponse("this request comes from another site", 403)
        if self._has_cookie(headers):
            return None
        given = QueryParams(scope["query_string"]).get(TOKEN, "")
        if scope["method"] == "GET" and secrets.compare_digest(given.encode(), self._keys.token.encode()):
            rest = URL(scope=scope).remove_query_params(TOKEN)
            answer = RedirectResponse(f"{rest.path}?{rest.query}" if rest.query else rest.path, 303)
            answer.set_cookie(self._keys.cookie, self._keys.session, httponly=True, samesite="strict")
            return answer
        return PlainTextResponse("open the link that `cloudrec ui` has printed: it lets this browser in", 403)

    def _has_cookie(self, headers: Headers) -> bool:
        for text in headers.getlist("cookie"):
            try:
                found = SimpleCookie(text).get(self._keys.cookie)
            except CookieError:
                continue
            if found and secrets.compare_digest(found.value.encode(), self._keys.session.encode()):
                return True
        return False


def _is_from_here(headers: Headers, host: str) -> bool:
    """Return whether a page of this server sent a request: browsers state it, other programs need not."""
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    return headers.get("origin", f"http://{host}") == f"http://{host}"
