"""What goes over the wire, free of any web framework."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from moto.core.request import (
    PRESERVED_HEADER_NAMES_ENVIRON_KEY,
    environ_key_for_header,
    should_preserve_original_header_name,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One HTTP answer."""

    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


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
        """The path without its query, decoded."""
        return unquote(urlsplit(self.target).path)

    def environ(self) -> dict[str, Any]:
        """The request as WSGI has it, made anew for every reader of its body."""
        parts = urlsplit(self.target)
        host, _, port = self.lower.get("host", "127.0.0.1:80").partition(":")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": self.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote(parts.path, "latin-1"),
            "QUERY_STRING": parts.query,
            "RAW_URI": self.target,
            "REQUEST_URI": self.target,
            "SERVER_NAME": host,
            "SERVER_PORT": port or "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(self.body),
            "wsgi.input_terminated": True,
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        preserved: dict[str, str] = {}
        for name, value in self.headers.items():
            key = environ_key_for_header(name)
            if should_preserve_original_header_name(name):
                preserved[key] = name
            if key in ("HTTP_CONTENT_TYPE", "HTTP_CONTENT_LENGTH"):
                key = key.removeprefix("HTTP_")
            if key != "HTTP_TRANSFER_ENCODING":  # the body has been put together
                environ[key] = value
        environ["CONTENT_LENGTH"] = str(len(self.body))
        environ[PRESERVED_HEADER_NAMES_ENVIRON_KEY] = preserved
        return environ
