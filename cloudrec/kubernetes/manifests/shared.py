"""Mounts the cluster's file systems and buckets in a run's pods, below /mnt.

Only volumes of which the run names a path are mounted: if another one's driver or claim is missing, the pod
would wait for it without end.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.kubernetes.manifests.workload import Workload

ROOT = "/mnt"
_DIGITS = 8


def claim_name(volume: Mapping[str, Any]) -> str:
    """Return the name of a volume's claim, which the add-on `volumes` creates.

    It ends with a digest of the volume's source: Kubernetes allows no change of the source of a
    PersistentVolume, so another source is another volume.
    """
    source = [volume.get(name) for name in ("driver", "handle", "attributes", "mount_options")]
    digest = hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()[:_DIGITS]
    return f"cloudrec-{volume['name']}-{digest}"


def used(workload: Workload, target: ClusterTarget) -> list[Mapping[str, Any]]:
    """Return the cluster's volumes of which the run names a path: /mnt/NAME or one below it."""
    texts = "\n".join([workload.config, workload.results, *workload.flags, *workload.environment.values()])
    return [each for each in target.volumes if _path(each["name"]).search(texts)]


def _path(volume: str) -> re.Pattern[str]:
    return re.compile(rf"(?:(?<![\w./-])|file://){ROOT}/{re.escape(volume)}(?![\w.-])")


def mounts(workload: Workload, target: ClusterTarget) -> list[dict[str, Any]]:
    """Return the volume mounts of a container."""
    return [
        {"name": claim_name(each), "mountPath": f"{ROOT}/{each['name']}"} for each in used(workload, target)
    ]


def volumes(workload: Workload, target: ClusterTarget) -> list[dict[str, Any]]:
    """Return the pod's volumes."""
    names = [claim_name(each) for each in used(workload, target)]
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]


def pod_annotations(workload: Workload, target: ClusterTarget) -> dict[str, str]:
    """Return the pod annotations that the volumes' drivers need."""
    return {
        name: value
        for each in used(workload, target)
        for name, value in (each.get("pod_annotations") or {}).items()
    }
