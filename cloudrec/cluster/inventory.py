"""What cloudrec has put into a cluster, kept in the cluster: any machine can upgrade and remove it.

Each add-on has a ConfigMap that names its objects. It is written before they are made, with those of the
version before it, and again once they are there: whatever happens in between, nothing of ours is forgotten.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import PreflightError
from cloudrec.manifests.names import CLUSTER, MANAGED_BY, MANAGER, cluster_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec.kube.client import Kube

ADDON = "cloudrec/addon"
SYSTEM = "kube-system"
_PREFIX = "cloudrec-addon-"


@dataclass(frozen=True, kw_only=True, order=True)
class Reference:
    """One object: enough to find it.

    Attributes:
        version: its apiVersion.
        kind: its kind.
        namespace: where it is; empty for what belongs to the whole cluster.
        name: its name.
    """

    version: str
    kind: str
    namespace: str
    name: str

    @property
    def full_kind(self) -> str:
        """The kind as the client names it."""
        return f"{self.version}/{self.kind}"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One add-on that cloudrec has installed.

    Attributes:
        name: its name.
        version: which.
        sha256: of the release that was fetched; empty for templates of ours.
        cluster: the cluster's name.
        owner: who answers for it.
        objects: its objects, in the order in which they were applied.
        is_whole: whether the installation went to its end.
    """

    name: str
    version: str
    sha256: str
    cluster: str
    owner: str
    objects: tuple[Reference, ...]
    is_whole: bool


def labels_of(name: str, cluster: str, owner: str) -> dict[str, str]:
    """Return what each object of an add-on bears."""
    return {**cluster_labels(cluster, owner), ADDON: name}


def reference_to(manifest: Mapping[str, Any]) -> Reference:
    """Return where an object is found."""
    metadata = manifest["metadata"]
    return Reference(
        version=manifest["apiVersion"],
        kind=manifest["kind"],
        namespace=metadata.get("namespace") or "",
        name=metadata["name"],
    )


def is_ours(found: Mapping[str, Any], cluster: str) -> bool:
    """Tell whether an object bears our labels."""
    labels = found["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY) == MANAGER and labels.get(CLUSTER) == cluster


def read(kube: Kube, name: str) -> Record | None:
    """Return what is known of an add-on; None where cloudrec has not installed it."""
    found = kube.get("ConfigMap", _PREFIX + name, namespace=SYSTEM)
    return None if found is None else _record(found)


def read_all(kube: Kube) -> list[Record]:
    """Return all add-ons that cloudrec has installed."""
    labels = f"{MANAGED_BY}={MANAGER},{ADDON}"
    found = kube.list("ConfigMap", namespace=SYSTEM, labels=labels)
    return [_record(each) for each in found if each["metadata"]["name"].startswith(_PREFIX)]


def write(kube: Kube, record: Record) -> None:
    """Keep what is known of an add-on."""
    rows = [
        [each.version, each.kind, each.namespace, each.name]  # short: some releases have a hundred
        for each in record.objects
    ]
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": _PREFIX + record.name,
                "namespace": SYSTEM,
                "labels": labels_of(record.name, record.cluster, record.owner),
            },
            "data": {
                "name": record.name,
                "version": record.version,
                "sha256": record.sha256,
                "whole": json.dumps(record.is_whole),
                "objects": json.dumps(rows),
            },
        },
        force=True,
    )


def forget(kube: Kube, name: str) -> None:
    """Keep nothing of an add-on any more."""
    kube.delete("ConfigMap", _PREFIX + name, namespace=SYSTEM)


def together(*parts: Iterable[Reference]) -> tuple[Reference, ...]:
    """Return all references once, in the order in which they come."""
    return tuple(dict.fromkeys(each for part in parts for each in part))


def _record(found: Mapping[str, Any]) -> Record:
    labels, data = found["metadata"].get("labels") or {}, found.get("data") or {}
    try:
        return Record(
            name=data["name"],
            version=data["version"],
            sha256=data["sha256"],
            cluster=labels[CLUSTER],
            owner=labels.get("cloudrec/owner", ""),
            objects=tuple(
                Reference(version=version, kind=kind, namespace=namespace, name=name)
                for version, kind, namespace, name in json.loads(data["objects"])
            ),
            is_whole=json.loads(data["whole"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        name = found["metadata"]["name"]
        raise PreflightError(
            f"the ConfigMap {name} in {SYSTEM}, which tells what cloudrec has installed, is damaged: {error}",
            remedy=f"delete it and install the add-on again: kubectl -n {SYSTEM} delete configmap {name}",
        ) from error
