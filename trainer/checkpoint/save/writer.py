"""`python -m trainer.checkpoint.save.writer DESCRIPTOR`: the process that writes checkpoints during training.

One process per rank, without torch; the trainer starts it, and it ends with the trainer. It receives jobs
over a socket (a length, JSON, and the descriptor of a pipe with the snapshot's frames) and answers each with
a line of JSON; empty lines before that are heartbeats. Rank 0's process waits for the manifests of all ranks,
and commits.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cloudrec_contract.readable import is_readable
from trainer.base.errors import CheckpointError
from trainer.checkpoint.format.frames import StreamError, receive
from trainer.checkpoint.format.layer import write_layer
from trainer.checkpoint.save.committing import CommitPlan, commit_layer, prune_after
from trainer.checkpoint.store.base import open_store
from trainer.checkpoint.store.near import NearOptions
from trainer.checkpoint.store.owner import FencedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer.checkpoint.format.frames import Chunk, Frame

_PR_SET_PDEATHSIG = 1
_NICENESS = 5  # so that training has priority on a busy core
_HEARTBEAT_S = 1.0
_PATIENCE_S = 1800.0  # for the slowest rank, after this one has written
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.01, 1.0


def main() -> int:
    """Serve until the trainer closes the socket or dies."""
    # These signals ask the trainer to stop, which then waits for its last save: the writer must survive them.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
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
    except Exception as error:  # noqa: BLE001 - sent to the trainer, which raises it
        return {"error": repr(error)}
    return {"seconds": time.perf_counter() - started, **manifest_bytes}


def _do(control: socket.socket, job: dict[str, Any], descriptor: int) -> dict[str, Any]:
    store = open_store(job["uri"], near=NearOptions.from_json(job["near"]))
    if store.near is not None:
        store.near.prune(job["needed"])
    heartbeat = _Heartbeat(control)
    write_layer(store, job["stem"], heartbeat.during(receive(descriptor)), job["quantization"])
    if job["commit"] is None:
        return {}
    plan = CommitPlan.from_json(job["commit"])
    commit = commit_layer(store, plan, _Patience(control, heartbeat).wait)
    fallback = prune_after(store, plan)
    return {
        "layer": [[each.name, each.bytes, each.crc32] for each in commit.layers[-1]],
        "fallback": None if fallback is None else asdict(fallback),
    }


class _Heartbeat:
    """Sends the trainer an empty line about every second while a job makes progress."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._sent_at = time.monotonic()

    def beat(self) -> None:
        if time.monotonic() > self._sent_at + _HEARTBEAT_S:
            self._sent_at = time.monotonic()
            self._control.sendall(b"\n")

    def during(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        for head, chunks in frames:
            yield head, self._each(chunks)

    def _each(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            yield chunk
            self.beat()


class _Patience:
    """Waits for other ranks with growing pauses, until the trainer ends or the time is up."""

    def __init__(self, control: socket.socket, heartbeat: _Heartbeat) -> None:
        self._control = control
        self._heartbeat = heartbeat
        self._seconds = _SHORTEST_WAIT_S
        self._began = time.monotonic()

    def wait(self, name: str) -> None:
        if time.monotonic() > self._began + _PATIENCE_S:
            raise CheckpointError(
                f"rank 0 does not find {name}, which another rank was to write, after {_PATIENCE_S:.0f} s; "
                "checkpoint_dir must be a folder that all nodes share"
            )
        self._heartbeat.beat()
        # The trainer sends no second job before the answer, so a readable socket is a closed one.
        if is_readable(self._control, timeout_s=self._seconds):
            raise SystemExit(0)
        self._seconds = min(self._seconds * 1.5, _LONGEST_WAIT_S)


def _next_job(control: socket.socket) -> tuple[dict[str, Any], int] | None:
    size = array.array("i").itemsize
    head, ancillary, _, _ = control.recvmsg(8, socket.CMSG_LEN(size))
    if not head:
        return None
    descriptors = array.array("i", ancillary[0][2][:size])
    head += _exactly(control, 8 - len(head))
    return json.loads(_exactly(control, int.from_bytes(head, "little"))), descriptors[0]  # noqa: TID251 - of its parent process


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
