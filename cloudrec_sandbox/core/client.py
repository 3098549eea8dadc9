"""A client of /_control, which changes how a stand-in behaves."""

from __future__ import annotations

import json
import ssl
from contextlib import closing
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPConnection, HTTPSConnection
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from cloudrec_sandbox.core.admission import TOKEN_HEADER, TOKEN_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_S = 180.0
_CONTROL = "/_control"


class RefusedError(ValueError):
    """A stand-in refused an order.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Control:
    """The /_control of one stand-in.

    Args:
        address: the stand-in's URL.
        token: the value announced as CLOUDREC_SANDBOX_TOKEN.
        authority: file with the certificate authority of a stand-in that speaks HTTPS.
        timeout_s: how long to wait for an answer.
    """

    def __init__(
        self, address: str, token: str, *, authority: str | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self.address = address
        self.headers: Mapping[str, str] = {TOKEN_HEADER: token, "Content-Type": "application/json"}
        self._authority = authority
        self._timeout_s = timeout_s

    @classmethod
    def of(cls, announcement: Mapping[str, Any], *, timeout_s: float = _TIMEOUT_S) -> Self:
        """Return the control of a stand-in from its announcement; KeyError if that is incomplete."""
        return cls(
            next(iter(announcement["endpoints"].values())),
            announcement["env"][TOKEN_VARIABLE],
            authority=announcement.get("certificate_authority"),
            timeout_s=timeout_s,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the TLS context, which cannot be saved; it is made again when it is needed."""
        return {name: value for name, value in self.__dict__.items() if name != "_tls"}

    def order(self, **wishes: object) -> dict[str, Any]:
        """Change the named settings; return all settings as they are afterwards.

        Raises:
            RefusedError: the stand-in does not know a setting, or refuses its value.
            OSError: the stand-in does not answer.
        """
        settings: dict[str, Any] = self.ask("POST", body=wishes)
        return settings

    def ask(self, method: str, path: str = "", body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Return the stand-in's answer at a path below /_control; errors as `order`."""
        data = None if body is None else json.dumps(body)
        with closing(self._connection()) as connection:
            connection.request(method, _CONTROL + path, data, dict(self.headers))
            answer = connection.getresponse()
            document = json.loads(answer.read())
        if answer.status != HTTPStatus.OK:
            raise RefusedError(answer.status, document["error"])
        return document

    def _connection(self) -> HTTPConnection:
        place = urlsplit(self.address)
        if place.scheme == "http":
            return HTTPConnection(place.netloc, timeout=self._timeout_s)
        return HTTPSConnection(place.netloc, timeout=self._timeout_s, context=self._tls)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._authority)
