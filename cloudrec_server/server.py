"""The server process: it reads the model, listens, and ends cleanly at a signal."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import uvicorn

from cloudrec.errors import CloudrecError, UsageError
from cloudrec_server.app import ScoringService
from cloudrec_server.scoring import make_ready
from trainer.serving.live import LiveModel
from trainer.serving.sources import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_server.settings import ServerSettings

_GRACE_S = 30  # for requests that run when the server is asked to end


def serve(settings: ServerSettings) -> None:
    """Serve until SIGTERM or SIGINT; requests that run then are finished.

    Raises:
        TrainerError: there is no model that can be served.
        CloudrecError: the address cannot be listened at.
    """
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    for name in ("trainer.serving", "cloudrec_server"):
        logging.getLogger(name).setLevel(logging.INFO)
    torch.set_num_threads(1)  # requests are the unit of work; a batch of some rows gains nothing from more
    with _listening(settings.host, settings.port) as listener:
        live = LiveModel(open_source(settings.package), make_ready)
        config = uvicorn.Config(
            ScoringService(live, settings).app(),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        host, port = listener.getsockname()[:2]
        served = live.served
        print(
            f"serving {served.trained.shape.model}, version {served.version}, step {served.trained.step}\n"
            f"at http://{f'[{host}]' if ':' in host else host}:{port}  (Ctrl-C ends it)",
            flush=True,
        )
        asyncio.run(_run(uvicorn.Server(config), listener))


async def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.force_exit = server.should_exit  # asked twice
        server.should_exit = True

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, end)
    await server._serve([listener])  # noqa: SLF001 - serve() would raise the signal again after a clean end


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens."""
    try:
        # With the protocol stated: asyncio sets TCP_NODELAY on such sockets alone, and without it each answer
        # waits 40 ms for an acknowledgement.
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )[0]
    except OSError as error:
        raise UsageError(f"--host is {host!r}, which has no address: {error.strerror}") from error
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(1024)
        except OSError as error:
            raise CloudrecError(
                f"cannot listen at {host} port {port}: {error.strerror}",
                remedy="choose another with --port; 0 takes a free one",
            ) from error
        yield listener
