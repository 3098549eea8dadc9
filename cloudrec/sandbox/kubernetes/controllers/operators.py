"""Which operators work: those that /_control names, and those whose program runs in a pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.sandbox.kubernetes.cluster import Cluster
    from cloudrec.sandbox.kubernetes.kubelet.agent import Kubelet

NAMES = ("pytorchjob", "trainjob", "jobset", "rayjob")
_KINDS = {
    "pytorchjob": (("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", True),),
    "trainjob": (
        ("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs", True),
        ("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes", True),
        ("trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", False),
        ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", True),
    ),
    "jobset": (("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", True),),
    "rayjob": (
        ("ray.io", "v1", "RayJob", "rayjobs", True),
        ("ray.io", "v1", "RayCluster", "rayclusters", True),
    ),
}
_STATUSLESS = ("trainingruntimes", "clustertrainingruntimes")


class Operators:
    """What is installed beside the built-in controllers."""

    def __init__(self, cluster: Cluster, kubelet: Kubelet) -> None:
        self._cluster = cluster
        self._kubelet = kubelet
        self.ordered: set[str] = set()

    def order(self, names: Sequence[str]) -> None:
        """Have exactly these work though no pod of theirs runs, with their kinds served."""
        if unknown := sorted(set(names) - set(NAMES)):
            raise ValueError(f"operators: unknown {', '.join(unknown)}; there are {', '.join(NAMES)}")
        resources = self._cluster.store.resources
        for name in self.ordered - set(names):
            for group, _, _, plural, _ in _KINDS[name]:
                resources.drop(group, plural)
        for name in names:
            for group, version, kind, plural, namespaced in _KINDS[name]:
                if resources.find(group, version, plural) is None:
                    resources.add(
                        group=group,
                        version=version,
                        kind=kind,
                        plural=plural,
                        namespaced=namespaced,
                        subresources=() if plural in _STATUSLESS else ("status",),
                    )
        self.ordered = set(names)
        if "trainjob" in names:
            make_runtime(self._cluster)

    def works(self, name: str) -> bool:
        """Whether a controller is at work."""
        return name in self.ordered or bool(self._kubelet.programs.get(name))


def make_runtime(cluster: Cluster) -> None:
    """Have Trainer's own runtime for torch, which is installed with it."""
    if cluster.store.get("clustertrainingruntimes", None, "torch-distributed") is not None:
        return
    pod = {
        "template": {
            "spec": {
                "containers": [{"name": "node", "image": "pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime"}]
            }
        }
    }
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": pod,
        },
    }
    cluster.store.create(
        "clustertrainingruntimes",
        {
            "metadata": {
                "name": "torch-distributed",
                "labels": {"trainer.kubeflow.org/framework": "torch"},
            },
            "spec": {
                "mlPolicy": {"numNodes": 1, "torch": {}},
                "template": {"spec": {"replicatedJobs": [job]}},
            },
        },
    )
