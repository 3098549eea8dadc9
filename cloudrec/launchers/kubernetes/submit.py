"""Creates, suspends and deletes a run's objects. After a crash, each call can be repeated."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cloudrec.errors import BusyError
from cloudrec.kubernetes.client.errors import AbsentError, ConflictError, KubeError
from cloudrec.kubernetes.health.causes import OUT_OF_SERVICE, is_left_behind
from cloudrec.kubernetes.wishes import QUEUED
from cloudrec.launchers.kubernetes.context import LAUNCH_LABEL, RUN_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.launchers.kubernetes.engine import JobOperator

_GONE_S, _POLL_S = 180.0, 0.5
_SEEN_S = 20.0  # a webhook's cache follows the API server within seconds


def apply_all(kube: Kube, objects: Sequence[Mapping[str, Any]], engine: JobOperator) -> dict[str, Any]:
    """Apply a run's objects in their order; return the object that the operator reads.

    That object becomes the owner of the run's other objects, so the cluster deletes them with it.
    """
    # An owner reference needs the owner's uid, so the owned objects are applied a second time.
    made = [(manifest, _apply(kube, manifest, engine)) for manifest in objects]
    kind = engine.kind.rpartition("/")[2]
    job = next(live for manifest, live in made if manifest["kind"] == kind)
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    for manifest, _ in made:
        labels = manifest["metadata"].get("labels") or {}
        if manifest["kind"] != kind and RUN_LABEL in labels:
            kube.apply(_owned(manifest, owner))
    return job


def suspended(objects: Sequence[Mapping[str, Any]], engine: JobOperator) -> list[Mapping[str, Any]]:
    """Return a run's objects with the one that makes pods suspended, as the keeper suspends it."""
    kind = engine.kind.rpartition("/")[2]
    return [_suspended(each, engine) if each["kind"] == kind else each for each in objects]


def _suspended(manifest: Mapping[str, Any], engine: JobOperator) -> dict[str, Any]:
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), QUEUED: "true"}
    changed = {**manifest, "metadata": {**metadata, "annotations": annotations}}
    place = changed
    *outer, last = engine.suspend
    for key in outer:
        place[key] = dict(place.get(key) or {})
        place = place[key]
    place[last] = True
    return changed


def _apply(kube: Kube, manifest: Mapping[str, Any], engine: JobOperator) -> dict[str, Any]:
    """Apply an object; while the operator's webhook does not see another one yet, try again."""
    deadline = time.monotonic() + _SEEN_S
    while True:
        try:
            return kube.apply(manifest)
        except KubeError as error:
            if not engine.awaits or engine.awaits not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


def _owned(manifest: Mapping[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [dict(owner)]}}


def launch_of(job: Mapping[str, Any]) -> int:
    """Return the number of an object's launch; 0 if the object has no such label."""
    text = str((job["metadata"].get("labels") or {}).get(LAUNCH_LABEL, "0"))
    return int(text) if text.isdigit() else 0


def remove_old(
    kube: Kube,
    engine: JobOperator,
    job: Mapping[str, Any],
    objects: Sequence[Mapping[str, Any]],
    *,
    wait_s: float = _GONE_S,
) -> None:
    """Delete the object of an earlier launch with all objects that it owns, and wait until they are gone.

    Args:
        kube: the cluster.
        engine: the operator.
        job: the object of the earlier launch.
        objects: the next launch's objects, whose names must be free.
        wait_s: the time limit in seconds.

    Raises:
        BusyError: an object still exists after `wait_s`.
    """
    metadata = job["metadata"]
    name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
    kube.delete(engine.kind, name, namespace=namespace, propagation=engine.removal, uid=uid)
    deadline = time.monotonic() + wait_s
    while left := _left(kube, engine, job, objects):
        if time.monotonic() > deadline:
            raise BusyError(
                f"the earlier launch of {name!r} remains after {wait_s:g} s: {', '.join(left)}",
                remedy="pods on a lost node remain for minutes: try again; if its machine stays off, "
                f"run: kubectl taint nodes NODE {OUT_OF_SERVICE}=nodeshutdown:NoExecute",
            )
        time.sleep(_POLL_S)


def _left(
    kube: Kube, engine: JobOperator, job: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the objects that remain of an earlier launch, as text; only those of the first kind found."""
    metadata = job["metadata"]
    name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
    live = engine.get(kube, name, namespace)
    if live is not None and live["metadata"]["uid"] == uid:
        return [f"{job['kind']} {name}"]
    if pod := kube.first("Pod", namespace=namespace, labels=trainer_labels(name)):
        return [f"its pods, such as {pod['metadata']['name']}"]
    made = [kube.get(engine.makes, name, namespace=namespace)] if engine.makes else []
    own = [kube.live(each) for each in objects]
    return [f"{each['kind']} {name}" for each in (*made, *own) if each is not None and _is_owned(each, uid)]


def _is_owned(live: Mapping[str, Any], uid: str) -> bool:
    return any(each["uid"] == uid for each in live["metadata"].get("ownerReferences") or ())


def pods_of(
    kube: Kube,
    run: str,
    namespace: str,
    launch: int | None = None,
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Return the pods of a run that train and have these labels, of one launch or of all (None)."""
    return kube.list("Pod", namespace=namespace, labels={**trainer_labels(run, launch), **labels})


def trainer_labels(run: str, launch: int | None = None) -> dict[str, str]:
    """Return the labels of a run's pods that train, of one launch or of all (None)."""
    own = {RUN_LABEL: run, "cloudrec/role": "trainer"}
    return own if launch is None else {**own, LAUNCH_LABEL: str(launch)}


def suspend(kube: Kube, engine: JobOperator, name: str, namespace: str) -> None:
    """Suspend an object: its pods end and it stays. An object that does not exist is no error."""
    # The keeper of a managed cluster resumes only the runs that it has suspended itself.
    change = {**engine.suspension(), "metadata": {"annotations": {QUEUED: None}}}
    try:
        kube.patch(engine.kind, name, change, namespace=namespace)
    except AbsentError:
        return


def end_left_behind(kube: Kube, pod: Mapping[str, Any], namespace: str) -> None:
    """End a pod whose node is dead; no error if it has ended meanwhile.

    A deletion without a grace period does not suffice: a Job's pod stays, by its finalizer, until it is
    Failed, which only a kubelet or the garbage collector sets. The condition shows that it was no crash.
    """
    metadata = pod["metadata"]
    # A merge patch replaces the whole list. The resource version makes the server refuse an older state.
    kept = [each for each in pod["status"].get("conditions") or [] if each.get("type") != "DisruptionTarget"]
    mark = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "cloudrec: its node is dead, and the Node object stays",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    change = {
        "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        "status": {"phase": "Failed", "conditions": [*kept, mark]},
    }
    with suppress(AbsentError, ConflictError):
        kube.patch("Pod", metadata["name"], change, namespace=namespace, subresource="status")
        kube.delete("Pod", metadata["name"], namespace=namespace, grace_s=0, uid=metadata["uid"])


def kill_pods(kube: Kube, pods: Sequence[Mapping[str, Any]], namespace: str) -> None:
    """Delete pods without a grace period."""
    for pod in pods:
        if is_left_behind(pod, float("inf")):  # the grace is over: no more time is given to its node
            end_left_behind(kube, pod, namespace)
            continue
        # With the uid, a pod that has meanwhile replaced one of these is not deleted.
        metadata = pod["metadata"]
        kube.delete("Pod", metadata["name"], namespace=namespace, grace_s=0, uid=metadata["uid"])
