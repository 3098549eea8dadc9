"""Converts a request for moto, which is a WSGI application."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from moto.core.request import (
    PRESERVED_HEADER_NAMES_ENVIRON_KEY,
    environ_key_for_header,
    should_preserve_original_header_name,
)

if TYPE_CHECKING:
    from cloudrec_sandbox.core.http import HttpRequest


def environ(request: HttpRequest) -> dict[str, Any]:
    """Return the request as a WSGI environment, a new one for every reader of its body."""
    parts = urlsplit(request.target)
    host, _, port = request.lower.get("host", "127.0.0.1:80").partition(":")
    found: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(parts.path, "latin-1"),
        "QUERY_STRING": parts.query,
        "RAW_URI": request.target,
        "REQUEST_URI": request.target,
        "SERVER_NAME": host,
        "SERVER_PORT": port or "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.input_terminated": True,
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    preserved: dict[str, str] = {}
    for name, value in request.headers.items():
        key = environ_key_for_header(name)
        if should_preserve_original_header_name(name):
            preserved[key] = name
        if key in ("HTTP_CONTENT_TYPE", "HTTP_CONTENT_LENGTH"):
            key = key.removeprefix("HTTP_")
        if key != "HTTP_TRANSFER_ENCODING":  # the server has joined the chunks of the body
            found[key] = value
    found["CONTENT_LENGTH"] = str(len(request.body))
    found[PRESERVED_HEADER_NAMES_ENVIRON_KEY] = preserved
    return found
