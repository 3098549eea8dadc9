"""What controllers in a cluster have made outside it, removed before the cluster is.

Load balancers, disks and file systems belong to Services, Ingresses and claims; once the cluster is gone,
nobody removes them any more. A cluster that does not answer is told of, and no reason to keep it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.engine.clock import Clock
from cloudrec.kube.errors import AbsentError, KubeError
from cloudrec.manifests.names import MANAGED_BY, MANAGER, RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cloudrec.kube.client import Kube

_WAIT_S = 300.0
_FIRST_POLL_S, _SLOWEST_POLL_S = 0.2, 5.0
# Runs go first: a claim stays for as long as a pod uses it.
_RUNS = (
    "batch/v1/Job",
    "kubeflow.org/v1/PyTorchJob",
    "trainer.kubeflow.org/v1alpha1/TrainJob",
    "ray.io/v1/RayJob",
)


@dataclass(frozen=True, kw_only=True)
class Drained:
    """What a drain did.

    Attributes:
        removed: what is gone, as kind, namespace and name.
        left: what was still there when the time was over, and may leave something behind.
        problem: why not everything could be looked at; empty where it could.
    """

    removed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class _Thing:
    kind: str
    namespace: str
    name: str
    volume: str = ""  # which a claim is bound to, and whose disk is to go with it

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind.rpartition('/')[2]} {where}{self.name}"


def drain(
    kube: Kube, report: Callable[[str], None], *, clock: Clock | None = None, wait_s: float = _WAIT_S
) -> Drained:
    """Delete what makes controllers leave things behind, and wait until it is gone; never an error.

    Args:
        kube: the cluster, which is about to be deleted as a whole.
        report: is told of each step, a line each.
        clock: by which is waited.
        wait_s: seconds that are waited at the most.
    """
    clock = clock or Clock()
    things: list[_Thing] = []
    try:
        _end_runs(kube, report)
        things = list(_things(kube))
        for each in things:
            report(f"deleting {each}, which has something outside the cluster")
            kube.delete(each.kind, each.name, namespace=each.namespace)
        left = _wait(kube, things, clock, wait_s)
    except KubeError as error:
        report(f"what controllers of the cluster have made may stay: {error.message}")
        return Drained(left=tuple(map(str, things)), problem=error.message)
    for each in left:
        report(f"{each} is still there; what it has outside the cluster is swept for afterwards")
    gone = tuple(str(each) for each in things if each not in left)
    return Drained(removed=gone, left=tuple(map(str, left)))


def _end_runs(kube: Kube, report: Callable[[str], None]) -> None:
    labels = f"{MANAGED_BY}={MANAGER},{RUN}"
    for kind in _RUNS:
        for row in _all(kube, kind, labels=labels):
            metadata = row["metadata"]
            report(f"ending the run {metadata['name']}")
            kube.delete(kind, metadata["name"], namespace=metadata["namespace"])


def _things(kube: Kube) -> Iterator[_Thing]:
    for row in _all(kube, "Ingress"):
        yield _thing("Ingress", row)
    for row in _all(kube, "Service"):
        if (row.get("spec") or {}).get("type") == "LoadBalancer":
            yield _thing("Service", row)
    volumes = {
        row["metadata"]["name"]
        for row in _all(kube, "PersistentVolume")
        if (row.get("spec") or {}).get("persistentVolumeReclaimPolicy") == "Delete"
    }
    for row in _all(kube, "PersistentVolumeClaim"):
        volume = (row.get("spec") or {}).get("volumeName", "")
        if volume in volumes:
            yield _thing("PersistentVolumeClaim", row, volume=volume)


def _thing(kind: str, row: Mapping[str, Any], *, volume: str = "") -> _Thing:
    metadata = row["metadata"]
    return _Thing(kind=kind, namespace=metadata.get("namespace", ""), name=metadata["name"], volume=volume)


def _wait(kube: Kube, things: list[_Thing], clock: Clock, wait_s: float) -> list[_Thing]:
    """Wait for the volumes too: a disk is gone only when they are."""
    left, deadline, poll_s = things, clock.now() + clock.limit(wait_s), _FIRST_POLL_S
    while True:
        is_late = clock.now() >= deadline
        left = [each for each in left if _is_there(kube, each)]
        if not left or is_late:
            return left
        clock.sleep(poll_s)
        poll_s = min(2 * poll_s, _SLOWEST_POLL_S)


def _is_there(kube: Kube, thing: _Thing) -> bool:
    if kube.get(thing.kind, thing.name, namespace=thing.namespace) is not None:
        return True
    return bool(thing.volume) and kube.get("PersistentVolume", thing.volume) is not None


def _all(kube: Kube, kind: str, *, labels: str = "") -> list[dict[str, Any]]:
    try:
        return kube.list(kind, labels=labels)
    except AbsentError:
        return []  # the cluster does not know this kind
