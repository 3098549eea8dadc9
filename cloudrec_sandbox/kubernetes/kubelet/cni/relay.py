"""Connects pods with separate networks to services on this machine's loopback, such as other stand-ins."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

_CHUNK = 1 << 18
_HOST = "127.0.0.1"


class Relay:
    """Passes on connections: from listeners in pods' networks to the same port here."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._servers: dict[int, list[asyncio.Server]] = {}
        self._passing: set[asyncio.Task[None] | None] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()

    def offer(self, group: int, listener: socket.socket, port: int) -> None:
        """Pass on the connections of a listener, until its group is ended."""
        asyncio.run_coroutine_threadsafe(self._serve(group, listener, port), self._loop).result()

    def end(self, group: int) -> None:
        """Stop listening for a group."""
        asyncio.run_coroutine_threadsafe(self._end(group), self._loop).result()

    def close(self) -> None:
        """Stop everything."""
        asyncio.run_coroutine_threadsafe(self._end_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, group: int, listener: socket.socket, port: int) -> None:
        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            self._passing.add(task)  # asyncio keeps no reference to a task whose client has hung up
            try:
                await _connect(reader, writer, port)
            finally:
                self._passing.discard(task)

        server = await asyncio.start_server(pass_on, sock=listener)
        self._servers.setdefault(group, []).append(server)

    async def _end(self, group: int) -> None:
        for server in self._servers.pop(group, ()):
            server.close()
            await server.wait_closed()

    async def _end_all(self) -> None:
        for group in list(self._servers):
            await self._end(group)
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    try:
        far_reader, far_writer = await asyncio.open_connection(_HOST, port)
    except OSError:  # nothing listens there: the client sees a reset
        writer.transport.abort()
        return
    try:
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
    finally:
        for each in (writer, far_writer):
            each.close()
            with suppress(OSError, asyncio.CancelledError):
                await each.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:  # one side is gone: close the other one too, or it would wait forever
        writer.transport.abort()
