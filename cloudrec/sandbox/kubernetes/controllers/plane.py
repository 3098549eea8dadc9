"""The control plane and its nodes as one thing that is started and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.sandbox.kubernetes.cluster import Cluster, Worker
from cloudrec.sandbox.kubernetes.controllers.budget import BudgetController
from cloudrec.sandbox.kubernetes.controllers.claim import ClaimController
from cloudrec.sandbox.kubernetes.controllers.cronjob import CronJobController
from cloudrec.sandbox.kubernetes.controllers.daemonset import DaemonSetController
from cloudrec.sandbox.kubernetes.controllers.deployment import DeploymentController
from cloudrec.sandbox.kubernetes.controllers.endpoints import EndpointsController
from cloudrec.sandbox.kubernetes.controllers.job import JobController
from cloudrec.sandbox.kubernetes.controllers.jobset import JobSetController
from cloudrec.sandbox.kubernetes.controllers.operators import Operators
from cloudrec.sandbox.kubernetes.controllers.pytorchjob import PyTorchJobController
from cloudrec.sandbox.kubernetes.controllers.raycluster import RayClusterController
from cloudrec.sandbox.kubernetes.controllers.rayjob import RayJobController
from cloudrec.sandbox.kubernetes.controllers.replicaset import ReplicaSetController
from cloudrec.sandbox.kubernetes.controllers.trainjob import TrainJobController
from cloudrec.sandbox.kubernetes.kubelet.agent import Kubelet
from cloudrec.sandbox.kubernetes.kubelet.serving import LogServer
from cloudrec.sandbox.kubernetes.loss import Losses, Timing
from cloudrec.sandbox.kubernetes.nodes import DEFAULT, Nodes
from cloudrec.sandbox.kubernetes.scheduler import Scheduler

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec.sandbox.clock import Clock
    from cloudrec.sandbox.kubernetes.store import Store

_CONTROLLERS = (
    JobController,
    DaemonSetController,
    DeploymentController,
    ReplicaSetController,
    CronJobController,
    BudgetController,
    ClaimController,
    EndpointsController,
)
_OPERATED = (
    PyTorchJobController,
    TrainJobController,
    JobSetController,
    RayJobController,
    RayClusterController,
)


class Controllers:
    """All that acts in a cluster."""

    kubelet: Kubelet
    nodes: Nodes
    operators: Operators
    losses: Losses

    def __init__(self, store: Store, clock: Clock, address: str, authority: Path | None) -> None:
        """Start it all; for the arguments see `start`."""
        self.cluster = Cluster(store, clock)
        self.worker = Worker("controllers", clock)
        self.kubelet = Kubelet(self.cluster)
        self.nodes = Nodes(self.cluster, self.kubelet)
        self.operators = Operators(self.cluster, self.worker, self.kubelet)
        self.losses = Losses(self.cluster, self.worker, self.nodes, self.kubelet)
        self.scheduler = Scheduler(self.cluster, self.worker)
        self.controllers = [
            *(each(self.cluster, self.worker) for each in _CONTROLLERS),
            *(each(self.cluster, self.worker, self.operators) for each in _OPERATED),
        ]
        store.logs = LogServer(self.kubelet)
        self.kubelet.accounts.serve(address, authority)
        self.kubelet.start()
        self.worker.start()
        self.nodes.set(DEFAULT)

    def reset(self) -> None:
        """Be as at the start: two nodes, nothing ordered; the objects were cleared by the store.

        What a cloud gives its pods stays: that is around the cluster, not in it.
        """
        self.kubelet.books_only = False
        self.kubelet.bookkeeping = {}
        self.kubelet.images.clear()
        self.losses.timing = Timing()
        self.operators.order(())
        self.nodes.restore()

    def close(self) -> None:
        """End all threads, then all processes."""
        self.worker.close()
        self.kubelet.close()
