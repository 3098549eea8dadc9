"""What the guard does for the pods of runs in progress, with the user's machine off.

A pod whose node is dead is ended only by the removal of its Node object. A cloud's controller does that; on
bare metal none does, and the run would wait without end. The guard ends such a pod if the run allows it:
cloudrec's trainer cannot harm the run from a node that is cut off, since its claims on the results and the
checkpoints are older than those of its replacement (`agent.lease`).

The Job controller delays a replacement by 10 s, doubled with each earlier preemption of the same index, up to
ten minutes. It counts these in an annotation of the pod. The guard removes the count from a pod that has
trained for a while, so a long run on preemptible nodes does not wait longer and longer.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.client.errors import AbsentError, ConflictError
from cloudrec.kubernetes.client.target import DEAD_NODE
from cloudrec.kubernetes.health.causes import is_left_behind
from cloudrec.kubernetes.manifests.names import MANAGED_BY, MANAGER, ROLE, RUN, TRAINER
from cloudrec.kubernetes.wishes import IGNORED
from cloudrec.launchers.kubernetes.submit import end_left_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.kubernetes.client.client import Kube

REPLACE = "replace"
_SETTLED_S = 300.0


def tend(kube: Kube, namespace: str, report: Callable[[str], None]) -> None:
    """End the pods of dead nodes, and forget the preemptions of pods that train again.

    Args:
        kube: a client of the cluster's API server.
        namespace: the namespace of the runs.
        report: receives a line for each change.
    """
    labels = f"{MANAGED_BY}={MANAGER},{RUN},{ROLE}={TRAINER}"
    # Of a thousand pods, metadata is a tenth of the bytes.
    for seen in kube.list("Pod", namespace=namespace, labels=labels, metadata_only=True):
        metadata = seen["metadata"]
        annotations = metadata.get("annotations") or {}
        may_end = metadata.get("deletionTimestamp") and annotations.get(DEAD_NODE) == REPLACE
        if not may_end and IGNORED not in annotations:
            continue
        pod = kube.get("Pod", metadata["name"], namespace=namespace)
        if pod is None or pod["metadata"]["uid"] != metadata["uid"]:
            continue
        if may_end and is_left_behind(pod, kube.now_s()):
            node = pod["spec"].get("nodeName")
            report(f"pod {metadata['name']}: its node {node} is dead; it is ended, and another one begins")
            end_left_behind(kube, pod, namespace)
        elif _has_settled(pod, kube.now_s()):
            _forget(kube, pod, namespace)


def _has_settled(pod: Mapping[str, Any], now_s: float) -> bool:
    """Return whether a pod has been ready for a while."""
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            since = datetime.fromisoformat(condition["lastTransitionTime"]).astimezone(UTC)
            return now_s - since.timestamp() > _SETTLED_S
    return False


def _forget(kube: Kube, pod: Mapping[str, Any], namespace: str) -> None:
    change = {"metadata": {"uid": pod["metadata"]["uid"], "annotations": {IGNORED: None}}}
    try:
        kube.patch("Pod", pod["metadata"]["name"], change, namespace=namespace)
    except (AbsentError, ConflictError):
        return  # it has ended meanwhile
