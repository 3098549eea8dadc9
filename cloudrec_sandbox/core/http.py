"""HTTP requests and replies, independent of any web framework."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


class BrokenStreamError(Exception):
    """Raised by a stream that must end without its last chunk, as a broken connection does."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One HTTP answer. Each piece of `stream` follows `body` when it is yielded; b"" keeps the line open.

    After the headers, `upgrade` gets the connection for another protocol, and the connection ends with it.
    """

    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    stream: Iterator[bytes] | None = None
    upgrade: Callable[[Any], None] | None = None


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """One HTTP request; `target` is the path with its query, as it arrived; `headers` keep their spelling."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    lower: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", {name.lower(): value for name, value in self.headers.items()})

    @property
    def path(self) -> str:
        """Return the path without its query, decoded."""
        return unquote(urlsplit(self.target).path)


def json_reply(document: object, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Reply:
    """Return a reply whose body is `document` as JSON."""
    body = json.dumps(document, default=str).encode()
    return Reply(status=status, headers=(("Content-Type", "application/json"), *headers), body=body)
