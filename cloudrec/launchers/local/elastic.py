"""torchrun on one machine: `python -m cloudrec.launchers.local.elastic TORCHRUN ARGS`.

It differs from `python -m torch.distributed.run` in two ways. The agent is killed when the supervisor that
started it ends. And there is a rendezvous named `loopback`: torch's own rendezvous stores listen on every
network interface, without authentication, and bind their port later than they choose it. This one binds a
free port of 127.0.0.1 and passes the bound socket to the store. So no other machine can reach it, and no
other process can take the port. Where the agent gives this node a key (`ordered.KEY`), the rendezvous c10d
numbers the nodes by their keys.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from _thread import interrupt_main
from functools import partial
from typing import Any

from torch.distributed import DistError, PrefixStore, TCPStore
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.rendezvous import (
    RendezvousError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.run import main as torchrun

from cloudrec.launchers.local import ordered
from cloudrec.process.tether import ONE_SIGNAL, PARENT_PID, die_with
from cloudrec_contract.exit_codes import STOPPED

_LOOPBACK = "127.0.0.1"


class LoopbackRendezvous(RendezvousHandler):  # type: ignore[misc] # torch is seen as Any
    """The rendezvous of a single node: always rank 0 of 1, with a fresh store for each attempt."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._run_id = parameters.run_id
        self._store: Any = None

    @property
    def use_agent_store(self) -> bool:
        """True: the workers join the agent's store instead of creating another one."""
        return True

    def get_backend(self) -> str:
        """Return the name of the rendezvous."""
        return "loopback"

    def get_run_id(self) -> str:
        """Return the id given on the command line."""
        return str(self._run_id)

    def next_rendezvous(self) -> RendezvousInfo:
        """Open a store for the next attempt; the store of the attempt before is closed."""
        listener = socket.create_server((_LOOPBACK, 0))
        port = listener.getsockname()[1]
        self._store = TCPStore(
            _LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        store = PrefixStore(self._run_id, self._store)
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo(_LOOPBACK, port))

    def is_closed(self) -> bool:
        """Return False: workers may always be started again."""
        return False

    def set_closed(self) -> None:
        """Do nothing: there is no other node to inform."""

    def num_nodes_waiting(self) -> int:
        """Return 0: no other node can join."""
        return 0

    def shutdown(self) -> bool:
        """Close the store."""
        self._store = None
        return True


def main(arguments: list[str]) -> None:
    """Run the elastic agent; exit with 0 if every worker did, with STOPPED if a node was lost, else 1."""
    die_with(int(os.environ[PARENT_PID]))
    os.environ[PARENT_PID] = str(os.getpid())  # for the workers
    rendezvous_handler_registry.register("loopback", LoopbackRendezvous)
    if key := os.environ.get(ordered.KEY):
        rendezvous_handler_registry.register(ordered.BACKEND, partial(ordered.create, key=key))
        arguments = ordered.with_backend(arguments)
    if os.environ.get(ONE_SIGNAL) == "1":
        _take_one_signal()
    try:
        torchrun(arguments)
    except SignalException as stop:  # the supervisor's stop: no error, so no traceback
        sys.exit(128 + stop.sigval)
    except (RendezvousError, DistError) as lost:  # the node of the store is lost, or nodes did not join
        reason = " ".join(f"{type(lost).__name__}: {lost}".split())
        print(f"error: the other nodes were not found, or lost: {reason}", file=sys.stderr, flush=True)
        sys.exit(STOPPED)


def _take_one_signal() -> None:
    """Pass at most one SIGTERM on to torch, which at a second one stops waiting for its workers to end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # for this thread, and all that it starts

    def pass_on() -> None:
        signal.sigwait([signal.SIGTERM])
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            os._exit(128 + signal.SIGTERM)  # no worker has been started yet
        interrupt_main(signal.SIGTERM)
        while True:  # take and ignore the others
            signal.sigwait([signal.SIGTERM])

    threading.Thread(target=pass_on, name="signals", daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
