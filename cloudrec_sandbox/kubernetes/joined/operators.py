"""Operators next to another API server: their controllers run in this process, with a separate client."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from cloudrec_sandbox.core.clock import Clock
from cloudrec_sandbox.kubernetes.api.definitions import OPERATORS
from cloudrec_sandbox.kubernetes.controllers.custom_resources.operators import Operators
from cloudrec_sandbox.kubernetes.controllers.plane import OPERATED
from cloudrec_sandbox.kubernetes.joined.connection import Connection
from cloudrec_sandbox.kubernetes.joined.store import JoinedStore
from cloudrec_sandbox.kubernetes.objects.errors import ApiError
from cloudrec_sandbox.kubernetes.storage.cluster import Cluster, Worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cloudrec_sandbox.kubernetes.kubelet.pods.agent import Kubelet

# What the operators make: JobSets make Jobs, whose pods the API server's own Job controller makes.
_MADE = ("pods", "services", "secrets", "jobs")
_PATIENCE_S, _AGAIN_S = 30.0, 0.1  # a kind is served a moment after its definition is created
_NOT_FOUND = 404


class JoinedOperators:
    """The operators of a cluster whose control plane has none; close it."""

    def __init__(self, kubeconfig: Path, context: str, kubelet: Kubelet) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._kubelet = kubelet
        self._running = ExitStack()

    def order(self, names: Sequence[str]) -> None:
        """Run exactly these operators, all from a fresh start; ApiError if their kinds are not served."""
        if unknown := sorted(set(names) - set(OPERATORS)):
            raise ValueError(f"operators: unknown {', '.join(unknown)}; there are {', '.join(OPERATORS)}")
        self.close()
        if names:
            self._start(names)

    def close(self) -> None:
        """Stop them; their objects stay."""
        self._running.close()

    def _start(self, names: Sequence[str]) -> None:
        kinds = [place for name in names for place in OPERATORS[name]]
        plurals = [plural.lstrip(".") for _, _, named in kinds for plural in named.values()]
        clock = Clock(1.0)
        connection = Connection(self._kubeconfig, self._context, agent="operators")
        self._running.callback(connection.close)
        store = JoinedStore(connection, clock, dict.fromkeys([*_MADE, *plurals], ""))
        for group, version, named in kinds:
            for kind, plural in named.items():
                _serve(store, group=group, version=version, kind=kind, plural=plural)
                _await_served(connection, f"/apis/{group}/{version}/{plural.lstrip('.')}")
        cluster, worker = Cluster(store, clock), Worker("operators", clock)
        operators = Operators(cluster, worker, self._kubelet)
        for controller in OPERATED:
            controller(cluster, worker, operators)
        self._running.callback(store.close)
        store.start()
        # Not before all kinds are known: a controller makes what it does not see.
        self._running.callback(worker.close)
        worker.start()
        operators.begin(names)


def _serve(store: JoinedStore, *, group: str, version: str, kind: str, plural: str) -> None:
    bare = plural.lstrip(".")
    store.resources.add(
        group=group,
        version=version,
        kind=kind,
        plural=bare,
        namespaced=bare == plural,
        subresources=("status",),
    )


def _await_served(connection: Connection, path: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection.call("GET", path, query={"limit": "1"})
        except ApiError as error:
            if error.status != _NOT_FOUND or time.monotonic() > deadline:
                raise
            time.sleep(_AGAIN_S)
        else:
            return
