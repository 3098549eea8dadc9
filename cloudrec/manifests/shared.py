"""The cluster's file systems and buckets as folders of a pod, where a run names them.

One that no path of the run is in is not mounted: its driver or its claim may not be there, and a pod would
wait for it for ever.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kube.target import Target
    from cloudrec.manifests.workload import Workload

ROOT = "/mnt"


def claim_name(volume: str) -> str:
    """Return the claim of a volume of the cluster, which the add-on `volumes` makes."""
    return f"cloudrec-{volume}"


def used(workload: Workload, target: Target) -> list[Mapping[str, Any]]:
    """Return the cluster's volumes of which a run names a path: /mnt/NAME and what is below it."""
    words = "\n".join([workload.config, workload.results, *workload.flags, *workload.environment.values()])
    return [each for each in target.volumes if _path(each["name"]).search(words)]


def _path(volume: str) -> re.Pattern[str]:
    return re.compile(rf"(?:(?<![\w./-])|file://){ROOT}/{re.escape(volume)}(?![\w.-])")


def mounts(workload: Workload, target: Target) -> list[dict[str, Any]]:
    """Return where a container sees them."""
    return [
        {"name": claim_name(each["name"]), "mountPath": f"{ROOT}/{each['name']}"}
        for each in used(workload, target)
    ]


def volumes(workload: Workload, target: Target) -> list[dict[str, Any]]:
    """Return them as the pod's volumes."""
    names = [claim_name(each["name"]) for each in used(workload, target)]
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]


def pod_annotations(workload: Workload, target: Target) -> dict[str, str]:
    """Return what their drivers want to read of a pod."""
    return {
        name: value
        for each in used(workload, target)
        for name, value in (each.get("pod_annotations") or {}).items()
    }
