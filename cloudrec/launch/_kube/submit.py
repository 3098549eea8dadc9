"""Has the cluster make a run's objects, so that a process that is killed on the way can do it again."""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cloudrec.errors import BusyError
from cloudrec.kube.errors import AbsentError, DeniedError
from cloudrec.launch._kube.context import LAUNCH_LABEL, RUN_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kube.client import Kube
    from cloudrec.launch._kube.engine import Engine

_GONE_S, _POLL_S = 180.0, 0.5
_SHARED = ("Namespace", "ServiceAccount", "PriorityClass")


def apply_all(kube: Kube, objects: Sequence[Mapping[str, Any]], engine: Engine) -> dict[str, Any]:
    """Apply a run's objects in their order; return the one that stands for the run.

    What belongs to the run alone becomes that one's property, so that it goes when that goes.
    """
    made = [(manifest, _apply(kube, manifest)) for manifest in objects]
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
        if manifest["kind"] not in (*_SHARED, kind) and RUN_LABEL in labels:
            kube.apply(_owned(manifest, owner))
    return job


def _owned(manifest: Mapping[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [dict(owner)]}}


def _apply(kube: Kube, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Apply an object; one that runs share may be there already for those who may not change it."""
    try:
        return kube.apply(manifest)
    except DeniedError:
        live = kube.live(manifest) if manifest["kind"] in _SHARED else None
        if live is None:
            raise
        return live


def launch_of(job: Mapping[str, Any]) -> int:
    """Return which launch of its run an object is of, 0 where it does not say."""
    text = str((job["metadata"].get("labels") or {}).get(LAUNCH_LABEL, "0"))
    return int(text) if text.isdigit() else 0


def remove_old(
    kube: Kube,
    engine: Engine,
    job: Mapping[str, Any],
    objects: Sequence[Mapping[str, Any]],
    *,
    wait_s: float = _GONE_S,
) -> None:
    """Delete the object of an earlier launch with all that it owns, and wait until it is gone.

    Args:
        kube: the cluster.
        engine: the operator.
        job: the object.
        objects: those of the next launch: what the earlier one owns of their names must not be there.
        wait_s: for how long.

    Raises:
        BusyError: something keeps it from going.
    """
    metadata = job["metadata"]
    name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
    kube.delete(engine.kind, name, namespace=namespace, propagation=engine.removal, uid=uid)
    deadline = time.monotonic() + wait_s
    while left := _left(kube, engine, job, objects):
        if time.monotonic() > deadline:
            raise BusyError(
                f"the earlier launch of {name!r} does not go away: {', '.join(left)} is left",
                remedy="a node that is gone may hold pods for minutes: try again, or delete it by kubectl",
            )
        time.sleep(_POLL_S)


def _left(
    kube: Kube, engine: Engine, job: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return what there still is of an earlier launch, in words; only the first kind of things found."""
    metadata = job["metadata"]
    name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
    live = engine.get(kube, name, namespace)
    if live is not None and live["metadata"]["uid"] == uid:
        return [f"{job['kind']} {name}"]
    if pods := pods_of(kube, name, namespace):
        return [f"{len(pods)} of its pods"]
    made = [kube.get(engine.makes, name, namespace=namespace)] if engine.makes else []
    own = [kube.live(each) for each in objects if each["kind"] not in _SHARED]
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
    """Return the pods of a run that train, of one launch or of all, with all of these labels."""
    wanted = {RUN_LABEL: run, "cloudrec/role": "trainer", **labels}
    wanted |= {} if launch is None else {LAUNCH_LABEL: str(launch)}
    return kube.list("Pod", namespace=namespace, labels=wanted)


def suspend(kube: Kube, engine: Engine, name: str, namespace: str) -> None:
    """Have an object's pods ended, and the object kept; nothing where there is none."""
    try:
        kube.patch(engine.kind, name, engine.suspension(), namespace=namespace)
    except AbsentError:
        return


def kill_pods(kube: Kube, pods: Sequence[Mapping[str, Any]], namespace: str) -> None:
    """End pods at once."""
    for pod in pods:
        metadata = pod["metadata"]
        kube.delete("Pod", metadata["name"], namespace=namespace, grace_s=0, uid=metadata["uid"])
