"""The control plane and its nodes, started and stopped together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec_sandbox.kubernetes.controllers.budget import BudgetController
from cloudrec_sandbox.kubernetes.controllers.claim import ClaimController
from cloudrec_sandbox.kubernetes.controllers.custom_resources.jobset import JobSetController
from cloudrec_sandbox.kubernetes.controllers.custom_resources.operators import Operators
from cloudrec_sandbox.kubernetes.controllers.custom_resources.pytorchjob import PyTorchJobController
from cloudrec_sandbox.kubernetes.controllers.custom_resources.raycluster import RayClusterController
from cloudrec_sandbox.kubernetes.controllers.custom_resources.rayjob import RayJobController
from cloudrec_sandbox.kubernetes.controllers.custom_resources.trainjob import TrainJobController
from cloudrec_sandbox.kubernetes.controllers.endpoints import EndpointsController
from cloudrec_sandbox.kubernetes.controllers.workloads.cronjob import CronJobController
from cloudrec_sandbox.kubernetes.controllers.workloads.daemonset import DaemonSetController
from cloudrec_sandbox.kubernetes.controllers.workloads.deployment import DeploymentController
from cloudrec_sandbox.kubernetes.controllers.workloads.job import JobController
from cloudrec_sandbox.kubernetes.controllers.workloads.replicaset import ReplicaSetController
from cloudrec_sandbox.kubernetes.kubelet.pods.agent import Kubelet
from cloudrec_sandbox.kubernetes.kubelet.serving import LogServer
from cloudrec_sandbox.kubernetes.kubelet.streaming import StreamServer
from cloudrec_sandbox.kubernetes.scheduling.loss import Losses, Timing
from cloudrec_sandbox.kubernetes.scheduling.nodes import DEFAULT, Nodes
from cloudrec_sandbox.kubernetes.scheduling.scheduler import Scheduler
from cloudrec_sandbox.kubernetes.storage.cluster import Cluster, Worker

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec_sandbox.core.clock import Clock
    from cloudrec_sandbox.kubernetes.storage.store import Store

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
OPERATED = (
    PyTorchJobController,
    TrainJobController,
    JobSetController,
    RayJobController,
    RayClusterController,
)


class Controllers:
    """Everything that acts in a cluster."""

    kubelet: Kubelet
    nodes: Nodes
    operators: Operators
    losses: Losses

    def __init__(self, store: Store, clock: Clock, address: str, authority: Path | None) -> None:
        """Start everything; for the arguments see `start`."""
        self.cluster = Cluster(store, clock)
        self.worker = Worker("controllers", clock)
        self.kubelet = Kubelet(self.cluster)
        self.nodes = Nodes(self.cluster, self.kubelet)
        self.operators = Operators(self.cluster, self.worker, self.kubelet)
        self.losses = Losses(self.cluster, self.worker, self.nodes, self.kubelet)
        self.cluster.mirror.subscribe(self.losses.note)
        self.scheduler = Scheduler(self.cluster, self.worker)
        self.controllers = [
            *(each(self.cluster, self.worker) for each in _CONTROLLERS),
            *(each(self.cluster, self.worker, self.operators) for each in OPERATED),
        ]
        store.logs = LogServer(self.kubelet)
        store.streams = StreamServer(self.kubelet)
        self.kubelet.accounts.serve(address, authority)
        self.kubelet.start()
        self.worker.start()
        self.nodes.set(DEFAULT)

    def reset(self) -> None:
        """Return to two nodes and no orders; the store has cleared the objects already.

        The variables that a cloud gives its pods stay: they belong to the cloud, not to the cluster.
        """
        self.kubelet.books_only = False
        self.kubelet.bookkeeping = {}
        self.kubelet.images.clear()
        self.losses.timing = Timing()
        self.operators.order(())
        self.nodes.restore()

    def close(self) -> None:
        """Stop all threads, then all processes."""
        self.worker.close()
        self.kubelet.close()
