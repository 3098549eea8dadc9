"""Commands in the pod of a rank, and its ports on this machine, through the API server."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import termios
import threading
import tty
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError, UsageError
from cloudrec.kubernetes.client import streams
from cloudrec.kubernetes.client.streams import ContainerPlace, LocalEnd
from cloudrec.launchers.base.attach import check_rank
from cloudrec.launchers.kubernetes.context import connect, spec_here, target_of
from cloudrec.launchers.kubernetes.watch.seeking import RankPods, container_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.kubernetes.engine import JobOperator

_LOG = logging.getLogger(__name__)
_LOOPBACK = "127.0.0.1"
_BACKLOG = 16


def execute(
    engine: JobOperator, run: RunFolder, command: Sequence[str], *, rank: int, stdin: bool, terminal: bool
) -> int:
    """Run a command in a rank's container; see `RunsCommands.execute`."""
    kube, place = _place(engine, run, rank)
    with _local_end(stdin=stdin, terminal=terminal) as end:
        return streams.execute(kube, place, command, end)


def forward(
    engine: JobOperator,
    run: RunFolder,
    *,
    rank: int,
    remote: int,
    local: int,
    ready: Callable[[int], None],
) -> None:
    """Serve a port of a rank's pod on this machine; see `ForwardsPorts.forward`."""
    kube, place = _place(engine, run, rank)
    # Before the first client connects: a lack of rights is no matter of each connection.
    streams.connect_port(kube, place, remote).close()
    try:
        listener = socket.create_server((_LOOPBACK, local), backlog=_BACKLOG)
    except OSError as error:
        raise UsageError(
            f"port {local} of this machine cannot be used: {error.strerror}",
            remedy="choose another one: `cloudrec port-forward RUN LOCAL:REMOTE`, or 0 for a free one",
        ) from error
    with listener:
        ready(listener.getsockname()[1])
        while True:
            client, _ = listener.accept()
            threading.Thread(
                target=_carried, args=(kube, place, remote, client), name="port-forward", daemon=True
            ).start()


def _carried(kube: Kube, place: ContainerPlace, port: int, client: socket.socket) -> None:
    with client:
        try:
            there = streams.connect_port(kube, place, port)
        except CloudrecError as error:
            _LOG.warning(error.message)
            return
        try:
            problem = streams.carry(there, client)
        finally:
            there.close()
        if problem:
            _LOG.warning(problem)


def _place(engine: JobOperator, run: RunFolder, rank: int) -> tuple[Kube, ContainerPlace]:
    """Return the container in which a rank runs."""
    spec = spec_here(run)
    target = target_of(spec)
    check_rank(spec, rank)
    kube = connect(target)
    pods = RankPods(kube, engine, spec, namespace=target.namespace, rank=rank)
    near = pods.near()
    known: list[Mapping[str, Any]] = [pod for pod in near if _runs(pod)]
    known = known or [pod for pod in pods.found(near) if _runs(pod)]
    if not known:
        raise UsageError(
            f"rank {rank} of run {spec.name} has no pod that runs now",
            remedy=f"`cloudrec status {spec.name}` shows its pods, `cloudrec logs {spec.name}` its output",
        )
    pod = known[-1]
    return kube, ContainerPlace(
        namespace=target.namespace, pod=str(pod["metadata"]["name"]), container=container_of(pod)
    )


def _runs(pod: Mapping[str, Any]) -> bool:
    status, metadata = pod.get("status"), pod.get("metadata")
    is_ending = isinstance(metadata, dict) and metadata.get("deletionTimestamp")
    return isinstance(status, dict) and status.get("phase") == "Running" and not is_ending


@contextmanager
def _local_end(*, stdin: bool, terminal: bool) -> Iterator[LocalEnd]:
    """Yield this process's own streams; with a terminal, its keys are sent as they are pressed."""
    given, out, err = sys.stdin.fileno() if stdin else None, 1, 2
    sys.stdout.flush()
    if not terminal:
        yield LocalEnd(stdin=given, stdout=out, stderr=err)
        return
    if given is None or not os.isatty(given):
        raise UsageError("stdin is no terminal", remedy="leave --tty out; --stdin passes a file or a pipe")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before, handled = termios.tcgetattr(given), signal.getsignal(signal.SIGWINCH)

    def resized(*_: object) -> None:
        with suppress(BlockingIOError):
            os.write(writer, b"1")

    signal.signal(signal.SIGWINCH, resized)
    tty.setraw(given)
    try:
        yield LocalEnd(stdin=given, stdout=out, stderr=err, size=os.get_terminal_size, resized=reader)
    finally:
        termios.tcsetattr(given, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handled)
        os.close(reader)
        os.close(writer)
