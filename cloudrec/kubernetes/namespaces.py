"""The namespace of the runs and their service account, in a cluster that cloudrec made.

In an adopted cluster, both are resources of its provider, which knows whether others created them. A run uses
them unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.client.errors import ConflictError
from cloudrec.kubernetes.manifests import namespace_objects
from cloudrec.kubernetes.manifests.names import CLUSTER, MANAGED_BY, MANAGER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.client.target import ClusterTarget


def prepare(kube: Kube, target: ClusterTarget, cluster: str, owner: str) -> None:
    """Create missing objects, and correct the labels and annotations of those that cloudrec created.

    Args:
        kube: the cluster.
        target: the names of its namespace and service account.
        cluster: the cluster's name.
        owner: the owner for the labels.
    """
    for manifest in namespace_objects(target, cluster, owner):
        found = kube.live(manifest) or _created(kube, manifest)
        if found is not None and _is_ours(found, cluster):
            _correct(kube, manifest, found)


def _created(kube: Kube, manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Create an object and return None, or return the object that another command has just created."""
    try:
        kube.create(manifest)
    except ConflictError as error:
        if not error.exists:
            raise
        return kube.live(manifest)
    return None


def _is_ours(found: Mapping[str, Any], cluster: str) -> bool:
    labels = found["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY) == MANAGER and labels.get(CLUSTER) == cluster


def _correct(kube: Kube, manifest: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Write the labels and annotations that differ; the identity or the fabric may have changed."""
    wanted, given = manifest["metadata"], found["metadata"]
    change: dict[str, dict[str, str]] = {}
    for part in ("labels", "annotations"):
        there = given.get(part) or {}
        wrong = dict((wanted.get(part) or {}).items() - there.items())
        if wrong:
            change[part] = wrong
    if change:
        kind = f"{manifest['apiVersion']}/{manifest['kind']}"
        kube.patch(kind, wanted["name"], {"metadata": change}, namespace=wanted.get("namespace", ""))
