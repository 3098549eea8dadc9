"""`python -m trainer.checkpoint.writer DESCRIPTOR`: the process that writes while the trainer trains.

One a rank, started by the trainer and ended with it, without torch. Over a socket it is given jobs (a
length, JSON, and the descriptor of a pipe with the snapshot's frames) and answers each with a line of
JSON; empty lines before it are signs of life. Rank 0's waits for the manifests of all ranks, and commits.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trainer.checkpoint.committing import CommitPlan, commit_layer, prune_after
from trainer.checkpoint.frames import StreamError, receive
from trainer.checkpoint.layer import write_layer
from trainer.checkpoint.owner import FencedError
from trainer.checkpoint.store import open_store
from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer.checkpoint.frames import Chunk, Frame

_PR_SET_PDEATHSIG = 1
_NICENESS = 5  # of two that want a core, training goes first
_LIFE_S = 1.0  # between signs of life
_PATIENCE_S = 1800.0  # for the slowest rank, once this one has written
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.01, 1.0


def main() -> int:
    """Serve until the trainer closes the socket or dies."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # they mean the trainer, which will want its last save written
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(_NICENESS)
    with suppress(ConnectionError), socket.socket(fileno=int(sys.argv[1])) as control:  # the trainer died
        while (job := _next_job(control)) is not None:
            answer = _answer(control, *job)
            control.sendall(json.dumps(answer).encode() + b"\n")
    return 0


def _answer(control: socket.socket, job: dict[str, Any], descriptor: int) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        manifest_bytes = _do(control, job, descriptor)
    except StreamError as error:
        return {"lost": str(error)}
    except CheckpointError as error:
        return {"error": str(error), "fenced": isinstance(error, FencedError)}
    except OSError as error:
        return {"error": f"{error.filename or job['uri']}: {error.strerror or error}"}
    except Exception as error:  # noqa: BLE001 - told to the trainer, which raises it
        return {"error": repr(error)}
    return {"seconds": time.perf_counter() - started, **manifest_bytes}


def _do(control: socket.socket, job: dict[str, Any], descriptor: int) -> dict[str, Any]:
    store = open_store(job["uri"])
    alive = _Life(control)
    write_layer(store, job["stem"], alive.during(receive(descriptor)), job["quantization"])
    if job["commit"] is None:
        return {}
    plan = CommitPlan.from_json(job["commit"])
    commit = commit_layer(store, plan, _Patience(control, alive).wait)
    prune_after(store, plan)
    return {"layer": [[each.name, each.bytes, each.crc32] for each in commit.layers[-1]]}


class _Life:
    """Tells the trainer now and then that something moves."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._told_at = time.monotonic()

    def tell(self) -> None:
        if time.monotonic() > self._told_at + _LIFE_S:
            self._told_at = time.monotonic()
            self._control.sendall(b"\n")

    def during(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        for head, chunks in frames:
            yield head, self._each(chunks)

    def _each(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            yield chunk
            self.tell()


class _Patience:
    """Waits for other ranks, longer and longer, as long as the trainer lives."""

    def __init__(self, control: socket.socket, alive: _Life) -> None:
        self._control = control
        self._alive = alive
        self._seconds = _SHORTEST_WAIT_S
        self._began = time.monotonic()

    def wait(self, name: str) -> None:
        if time.monotonic() > self._began + _PATIENCE_S:
            raise CheckpointError(
                f"rank 0 does not find {name}, which another rank was to write, after {_PATIENCE_S:.0f} s; "
                "checkpoint_dir must be a folder that all nodes share"
            )
        self._alive.tell()
        if select.select([self._control], [], [], self._seconds)[0]:
            raise SystemExit(0)  # the socket was closed: nobody wants this any more
        self._seconds = min(self._seconds * 1.5, _LONGEST_WAIT_S)


def _next_job(control: socket.socket) -> tuple[dict[str, Any], int] | None:
    size = array.array("i").itemsize
    head, ancillary, _, _ = control.recvmsg(8, socket.CMSG_LEN(size))
    if not head:
        return None
    descriptors = array.array("i", ancillary[0][2][:size])
    head += _exactly(control, 8 - len(head))
    return json.loads(_exactly(control, int.from_bytes(head, "little"))), descriptors[0]


def _exactly(control: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = control.recv(size - len(data))
        if not more:
            raise SystemExit(0)
        data += more
    return bytes(data)


if __name__ == "__main__":
    sys.exit(main())
