"""The control plane and its nodes as one thing that is started and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.sandbox.kubernetes.controllers import settings  # noqa: F401 - its keys of /_control
from cloudrec.sandbox.kubernetes.cluster import Cluster, Worker
from cloudrec.sandbox.kubernetes.controllers.job import JobController
from cloudrec.sandbox.kubernetes.controllers.operators import Operators
from cloudrec.sandbox.kubernetes.kubelet.agent import Kubelet
from cloudrec.sandbox.kubernetes.kubelet.serving import LogServer
from cloudrec.sandbox.kubernetes.loss import Losses
from cloudrec.sandbox.kubernetes.nodes import DEFAULT, Nodes
from cloudrec.sandbox.kubernetes.scheduler import Scheduler

if TYPE_CHECKING:
    from cloudrec.sandbox.clock import Clock
    from cloudrec.sandbox.kubernetes.store import Store

_CONTROLLERS = (JobController,)


class Controllers:
    """All that acts in a cluster."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.cluster = Cluster(store, clock)
        self.worker = Worker("controllers", clock)
        self.kubelet = Kubelet(self.cluster)
        self.nodes = Nodes(self.cluster, self.kubelet)
        self.scheduler = Scheduler(self.cluster, self.worker)
        self.controllers = [each(self.cluster, self.worker) for each in _CONTROLLERS]
        self.losses = Losses(self.cluster, self.worker, self.nodes, self.kubelet)
        self.operators = Operators(self.cluster, self.kubelet)
        store.logs = LogServer(self.kubelet)
        self.kubelet.start()
        self.worker.start()
        self.nodes.set(DEFAULT)

    def reset(self) -> None:
        """Have the usual nodes; pods went with their objects."""
        self.nodes.restore()

    def close(self) -> None:
        """End all threads, then all processes."""
        self.worker.close()
        self.kubelet.close()
