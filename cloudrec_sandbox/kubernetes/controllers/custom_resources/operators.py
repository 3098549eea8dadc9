"""Which operators work: those that /_control names, and those whose program runs in a pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.api import definitions
from cloudrec_sandbox.kubernetes.objects.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec_sandbox.kubernetes.kubelet.cni.network import Network
    from cloudrec_sandbox.kubernetes.kubelet.pods.agent import Kubelet
    from cloudrec_sandbox.kubernetes.storage.cluster import Cluster, Worker

NAMES = ("pytorchjob", "trainjob", "jobset", "rayjob")
_AGAIN_S = 0.1  # definitions are served a moment after they are created


class Operators:
    """The operators that are installed beside the built-in controllers."""

    def __init__(self, cluster: Cluster, worker: Worker, kubelet: Kubelet) -> None:
        self._cluster = cluster
        self._worker = worker
        self._kubelet = kubelet
        self.ordered: set[str] = set()

    def order(self, names: Sequence[str]) -> None:
        """Let exactly these operators work without a pod, and serve their kinds."""
        if unknown := sorted(set(names) - set(NAMES)):
            raise ValueError(f"operators: unknown {', '.join(unknown)}; there are {', '.join(NAMES)}")
        for name in self.ordered - set(names):
            definitions.remove(self._cluster.store, name)
        definitions.install(self._cluster.store, [name for name in names if name in definitions.OPERATORS])
        self.begin(names)

    def begin(self, names: Iterable[str]) -> None:
        """Let exactly these operators work without a pod; their kinds are served, or soon will be."""
        self.ordered = set(names)
        if "trainjob" in self.ordered:
            self._make_runtime()

    @property
    def network(self) -> Network:
        """Return the pods' network."""
        return self._kubelet.network

    def works(self, name: str) -> bool:
        """Return whether an operator's controller works."""
        return name in self.ordered or bool(self._kubelet.programs.get(name))

    def _make_runtime(self) -> None:
        """Make Trainer's own runtime for torch, which its installation includes."""
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
