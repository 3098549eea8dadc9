"""Removes the cloud resources that a cluster's controllers have created, before the cluster is deleted.

Load balancers, disks and file systems belong to Services, Ingresses and claims. The controllers remove them,
so after the deletion of the cluster nothing would. A cluster that does not answer is reported, and deleted
anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.engine.clock import Clock
from cloudrec.kubernetes.client.errors import AbsentError, KubeError
from cloudrec.kubernetes.manifests.names import MANAGED_BY, MANAGER, RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cloudrec.kubernetes.client.client import Kube

_WAIT_S = 300.0
_FIRST_POLL_S, _SLOWEST_POLL_S = 0.2, 5.0
# Runs are deleted first: a claim stays while a pod uses it.
_RUNS = (
    "batch/v1/Job",
    "kubeflow.org/v1/PyTorchJob",
    "trainer.kubeflow.org/v1alpha1/TrainJob",
    "jobset.x-k8s.io/v1alpha2/JobSet",
    "ray.io/v1/RayJob",
)


@dataclass(frozen=True, kw_only=True)
class Drained:
    """The result of a drain.

    Attributes:
        removed: the deleted objects, as kind, namespace and name.
        left: the objects that still existed at the end; their cloud resources may remain.
        problem: why the drain was incomplete; empty if it was complete.
    """

    removed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class _Owner:
    """An object that has a resource in the cloud."""

    kind: str
    namespace: str
    name: str
    volume: str = ""  # the volume of a claim, if its disk is deleted with it

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind.rpartition('/')[2]} {where}{self.name}"


def drain(
    kube: Kube, report: Callable[[str], None], *, clock: Clock | None = None, wait_s: float = _WAIT_S
) -> Drained:
    """Delete the objects that have resources in the cloud, and wait until they are deleted; raises no error.

    Args:
        kube: the cluster, which is about to be deleted.
        report: receives one line for each step.
        clock: the clock for the wait.
        wait_s: the limit of the wait in seconds.
    """
    clock = clock or Clock()
    owners: list[_Owner] = []
    try:
        _end_runs(kube, report)
        owners = list(_owners(kube))
        for each in owners:
            report(f"deleting {each}, which has a resource outside the cluster")
            kube.delete(each.kind, each.name, namespace=each.namespace)
        left = _wait(kube, owners, clock, wait_s)
    except KubeError as error:
        report(f"resources that the cluster's controllers have created may remain: {error.message}")
        return Drained(left=tuple(map(str, owners)), problem=error.message)
    for each in left:
        report(f"{each} still exists; its resources outside the cluster are searched for afterwards")
    gone = tuple(str(each) for each in owners if each not in left)
    return Drained(removed=gone, left=tuple(map(str, left)))


def _end_runs(kube: Kube, report: Callable[[str], None]) -> None:
    labels = f"{MANAGED_BY}={MANAGER},{RUN}"
    for kind in _RUNS:
        for row in _all(kube, kind, labels=labels):
            metadata = row["metadata"]
            report(f"ending the run {metadata['name']}")
            kube.delete(kind, metadata["name"], namespace=metadata["namespace"])


def _owners(kube: Kube) -> Iterator[_Owner]:
    for row in _all(kube, "Ingress"):
        yield _owner("Ingress", row)
    for row in _all(kube, "Service"):
        if (row.get("spec") or {}).get("type") == "LoadBalancer":
            yield _owner("Service", row)
    volumes = {
        row["metadata"]["name"]
        for row in _all(kube, "PersistentVolume")
        if (row.get("spec") or {}).get("persistentVolumeReclaimPolicy") == "Delete"
    }
    for row in _all(kube, "PersistentVolumeClaim"):
        volume = (row.get("spec") or {}).get("volumeName", "")
        if volume in volumes:
            yield _owner("PersistentVolumeClaim", row, volume=volume)


def _owner(kind: str, row: Mapping[str, Any], *, volume: str = "") -> _Owner:
    metadata = row["metadata"]
    return _Owner(kind=kind, namespace=metadata.get("namespace", ""), name=metadata["name"], volume=volume)


def _wait(kube: Kube, owners: list[_Owner], clock: Clock, wait_s: float) -> list[_Owner]:
    """Wait until the objects are deleted, and claims' volumes with them; return those that still exist.

    A volume's object is deleted after its disk, so its absence proves that the disk is deleted.
    """
    left, deadline, poll_s = owners, clock.now() + clock.limit(wait_s), _FIRST_POLL_S
    while True:
        is_late = clock.now() >= deadline
        left = [each for each in left if _is_there(kube, each)]
        if not left or is_late:
            return left
        clock.sleep(poll_s)
        poll_s = min(2 * poll_s, _SLOWEST_POLL_S)


def _is_there(kube: Kube, owner: _Owner) -> bool:
    if kube.get(owner.kind, owner.name, namespace=owner.namespace) is not None:
        return True
    return bool(owner.volume) and kube.get("PersistentVolume", owner.volume) is not None


def _all(kube: Kube, kind: str, *, labels: str = "") -> list[dict[str, Any]]:
    try:
        return kube.list(kind, labels=labels)
    except AbsentError:
        return []  # the cluster has no such kind
