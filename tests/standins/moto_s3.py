"""moto's server, in which of several that create one name at once one succeeds: `python -m ... PORT`.

S3 decides a request with If-None-Match in one go. moto first looks and then writes, so that of two requests
at the same moment both could succeed.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class OneAtATime:
    """Has an application see one conditional request at a time, once all of its body is there."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        length = environ.get("CONTENT_LENGTH")
        if "HTTP_IF_NONE_MATCH" not in environ or environ["REQUEST_METHOD"] == "GET" or not length:
            return self._application(environ, start_response)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        with self._lock:
            return self._application(environ, start_response)


def main(port: int) -> None:
    """Serve on loopback until the process is killed."""
    os.environ["MOTO_PORT"] = str(port)  # as its own command does
    application = OneAtATime(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(int(sys.argv[1]))
