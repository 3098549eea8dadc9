"""Which operators work: those that /_control names, and those whose program runs in a pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.kubernetes import definitions
from cloudrec.sandbox.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.sandbox.kubernetes.cluster import Cluster, Worker
    from cloudrec.sandbox.kubernetes.kubelet.agent import Kubelet
    from cloudrec.sandbox.kubernetes.kubelet.network import Network

NAMES = ("pytorchjob", "trainjob", "jobset", "rayjob")
_AGAIN_S = 0.1  # definitions take a moment


class Operators:
    """What is installed beside the built-in controllers."""

    def __init__(self, cluster: Cluster, worker: Worker, kubelet: Kubelet) -> None:
        self._cluster = cluster
        self._worker = worker
        self._kubelet = kubelet
        self.ordered: set[str] = set()

    def order(self, names: Sequence[str]) -> None:
        """Have exactly these work though no pod of theirs runs, with their kinds served."""
        if unknown := sorted(set(names) - set(NAMES)):
            raise ValueError(f"operators: unknown {', '.join(unknown)}; there are {', '.join(NAMES)}")
        for name in self.ordered - set(names):
            definitions.remove(self._cluster.store, name)
        definitions.install(self._cluster.store, [name for name in names if name in definitions.OPERATORS])
        self.ordered = set(names)
        if "trainjob" in names:
            self._make_runtime()

    @property
    def network(self) -> Network:
        """By which pods are reached."""
        return self._kubelet.network

    def works(self, name: str) -> bool:
        """Whether a controller is at work."""
        return name in self.ordered or bool(self._kubelet.programs.get(name))

    def _make_runtime(self) -> None:
        """Have Trainer's own runtime for torch, which is installed with it."""
        store = self._cluster.store
        try:
            if store.get("clustertrainingruntimes", None, _RUNTIME["metadata"]["name"]) is None:
                store.create("clustertrainingruntimes", _RUNTIME)
        except ApiError:  # its kind is not served yet
            self._worker.later(_AGAIN_S, "torch-distributed", self._make_runtime)


_IMAGE = "pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime"
_RUNTIME: dict[str, Any] = {
    "metadata": {"name": "torch-distributed", "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {
                                "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                            },
                            "spec": {
                                "template": {"spec": {"containers": [{"name": "node", "image": _IMAGE}]}}
                            },
                        },
                    }
                ]
            }
        },
    },
}
