"""torch's elastic agent (torchrun) on this machine alone: `python -m cloudrec.launch._elastic TORCHRUN ARGS`.

It adds two things to `python -m torch.distributed.run`: the agent dies with the supervisor that started it,
and a rendezvous named `loopback`. torch's own rendezvous stores listen on every network interface, without
authentication, and are found by a port that is chosen first and bound later. This one binds a free port of
127.0.0.1 and hands the bound socket to the store: nobody else can reach it, and there is no race for it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from _thread import interrupt_main
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

from cloudrec.launch._tether import ONE_SIGNAL, PARENT_PID, die_with
from cloudrec.launch.verdict import STOPPED

_LOOPBACK = "127.0.0.1"


class LoopbackRendezvous(RendezvousHandler):  # type: ignore[misc] # torch is seen as Any
    """The rendezvous of a single node: always rank 0 of 1, with a fresh store for each attempt."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._run_id = parameters.run_id
        self._store: Any = None

    @property
    def use_agent_store(self) -> bool:
        """Whether the workers join the agent's store instead of making one of their own."""
        return True

    def get_backend(self) -> str:
        """Return the name under which it is registered."""
        return "loopback"

    def get_run_id(self) -> str:
        """Return the id given on the command line."""
        return str(self._run_id)

    def next_rendezvous(self) -> RendezvousInfo:
        """Open a store for the next attempt; the one of the attempt before is closed."""
        listener = socket.create_server((_LOOPBACK, 0))
        port = listener.getsockname()[1]
        self._store = TCPStore(
            _LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        store = PrefixStore(self._run_id, self._store)
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo(_LOOPBACK, port))

    def is_closed(self) -> bool:
        """Tell that workers may always be started again."""
        return False

    def set_closed(self) -> None:
        """Do nothing: there is no other node to tell."""

    def num_nodes_waiting(self) -> int:
        """Return 0: no other node can join."""
        return 0

    def shutdown(self) -> bool:
        """Close the store."""
        self._store = None
        return True


def main(arguments: list[str]) -> None:
    """Run the elastic agent; it ends with 0 when every worker did, and with 1 otherwise."""
    die_with(int(os.environ[PARENT_PID]))
    os.environ[PARENT_PID] = str(os.getpid())  # for the workers
    rendezvous_handler_registry.register("loopback", LoopbackRendezvous)
    if os.environ.get(ONE_SIGNAL) == "1":
        _take_one_signal()
    try:
        torchrun(arguments)
    except SignalException as stop:  # the supervisor's request to end, not an error worth a traceback
        sys.exit(128 + stop.sigval)
    except (RendezvousError, DistError) as lost:  # the node that hosts it has gone, or others never came
        reason = " ".join(f"{type(lost).__name__}: {lost}".split())
        print(f"error: the other nodes were not found, or lost: {reason}", file=sys.stderr, flush=True)
        sys.exit(STOPPED)


def _take_one_signal() -> None:
    """Let torch see one SIGTERM at most: at each further one it gives up on workers that are still ending."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # for this thread, and all that it starts

    def pass_on() -> None:
        signal.sigwait([signal.SIGTERM])
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            os._exit(128 + signal.SIGTERM)  # no worker has been started yet
        interrupt_main(signal.SIGTERM)
        while True:
            signal.sigwait([signal.SIGTERM])

    threading.Thread(target=pass_on, name="signals", daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
