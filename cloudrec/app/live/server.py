"""Serves the live page on the loopback address until it is ended."""

from __future__ import annotations

import signal
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvicorn

from cloudrec.app.live.routes import LivePages
from cloudrec.app.live.security import Secrets
from cloudrec.errors import PreflightError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import FrameType

    from cloudrec.app.context import AppContext

_ADDRESS = "127.0.0.1"
_ANY = 0


def serve_page(app: AppContext, *, port: int | None, usual: int, opened: Callable[[str], None]) -> None:
    """Serve the page until SIGINT or SIGTERM.

    Args:
        app: what every use case works with.
        port: the port; None for the usual one, or a free one if that is taken.
        usual: the usual port.
        opened: is called with the link once the server answers.

    Raises:
        PreflightError: the port is taken.
    """
    listener = _listen(port, usual)
    keys = Secrets(port=listener.getsockname()[1])
    pages = LivePages(app, keys)
    served = pages.starlette()

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        pages.begin()
        opened(keys.link)
        yield

    served.router.lifespan_context = lifespan
    config = uvicorn.Config(
        served,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=2,
        ws="none",
    )
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        _Server(config, pages).run(sockets=[listener])
    except KeyboardInterrupt:  # which uvicorn raises again after it has ended: that is how the page is closed
        return
    finally:
        signal.signal(signal.SIGTERM, before)
        listener.close()


class _Server(uvicorn.Server):
    """Ends the pages' streams first, for which the server would wait otherwise."""

    def __init__(self, config: uvicorn.Config, pages: LivePages) -> None:
        super().__init__(config)
        self._pages = pages

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, at a signal."""
        self._pages.close()
        super().handle_exit(sig, frame)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _listen(port: int | None, usual: int) -> socket.socket:
    for number in (usual, _ANY) if port is None else (port,):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_ADDRESS, number))
        except OSError as error:
            listener.close()
            reason = error.strerror or str(error)
        else:
            listener.listen(64)
            return listener
    raise PreflightError(
        f"port {port} of {_ADDRESS} cannot be used: {reason}", remedy="name another with --port, or 0 for any"
    )
