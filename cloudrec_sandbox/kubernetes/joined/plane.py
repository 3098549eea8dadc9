"""Kubelets of nodes that joined an API server, and operators, started and stopped together."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.clock import Clock
from cloudrec_sandbox.kubernetes.joined.connection import Connection
from cloudrec_sandbox.kubernetes.joined.log_server import NodePort
from cloudrec_sandbox.kubernetes.joined.nodes import JoinedPools, MachineLosses
from cloudrec_sandbox.kubernetes.joined.operators import JoinedOperators
from cloudrec_sandbox.kubernetes.joined.store import JoinedStore
from cloudrec_sandbox.kubernetes.kubelet.pods.agent import Kubelet
from cloudrec_sandbox.kubernetes.kubelet.serving import LogServer
from cloudrec_sandbox.kubernetes.storage.cluster import Cluster, Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


class JoinedNodes:
    """Nodes of this process in the cluster of a kubeconfig; close it, or use it as a context manager."""

    def __init__(self, kubeconfig: Path, context: str = "") -> None:
        """Connect, and read the cluster's pods, services and nodes; no node joins yet."""
        clock = Clock(1.0)
        self.connection = Connection(kubeconfig, context)
        version = str(self.connection.call("GET", "/version").get("gitVersion", ""))
        self._folder = TemporaryDirectory(prefix="cloudrec-joined-")
        self._store = JoinedStore(self.connection, clock)
        self.cluster = Cluster(self._store, clock)
        self._worker = Worker("joined", clock)
        self.kubelet = Kubelet(self.cluster)
        folder = Path(self._folder.name)
        self._port = NodePort(self.cluster, LogServer(self.kubelet), folder, self.connection.authority)
        self.nodes = JoinedPools(self.cluster, self.kubelet, self._port, version)
        self._losses = MachineLosses(self.cluster, self._worker, self.nodes, self.kubelet)
        self._operators = JoinedOperators(kubeconfig, context, self.kubelet)
        authority = folder / "authority.pem"
        authority.write_text(self.connection.authority, encoding="utf-8")
        self.kubelet.accounts.serve(self.connection.server, authority)
        self.kubelet.start()
        self._worker.start()
        self._store.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def order(self, **wishes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Change what is named, as the stand-in's /_control does; ValueError for what only the stand-in has.

        The keys are nodes, node_timing, evict, environment, images, operators, processes and bookkeeping; see
        `cloudrec_sandbox.kubernetes.controllers.settings`. The definitions of the operators' kinds must be in
        the cluster.
        """
        keys: dict[str, Callable[[Any], None]] = {
            "nodes": self.nodes.order,
            "node_timing": self._set_timing,
            "evict": self._losses.order,
            "environment": lambda value: setattr(self.kubelet, "given", dict(value)),
            "images": self.kubelet.images.order,
            "operators": self._operators.order,
            "processes": lambda value: setattr(self.kubelet, "books_only", not value),
            "bookkeeping": lambda value: setattr(self.kubelet, "bookkeeping", dict(value)),
        }
        if unknown := sorted(set(wishes) - set(keys)):
            raise ValueError(f"only the stand-in takes {', '.join(unknown)}, not nodes of another API server")
        for name, value in wishes.items():
            keys[name](value)
        return {"nodes": self.nodes.document(), "node_timing": asdict(self._losses.timing)}

    def close(self) -> None:
        """Remove the nodes, and end every process."""
        self._operators.close()
        self._worker.close()
        self.nodes.close()
        self._port.close()
        self.kubelet.close()
        self._store.close()
        self._folder.cleanup()

    def _set_timing(self, value: dict[str, float]) -> None:
        self._losses.timing = self._losses.timing.changed(value)
