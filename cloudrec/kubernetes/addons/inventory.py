"""The inventory of cloudrec's add-ons, kept in the cluster, so that any machine can upgrade and remove them.

Each add-on has a ConfigMap that names its objects. It is written before the objects are applied, together
with those of the earlier version, and again afterwards. So it names every object, even after a crash.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.manifests.names import CLUSTER, MANAGED_BY, MANAGER, cluster_labels
from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec.kubernetes.client.client import Kube

ADDON = "cloudrec/addon"
SYSTEM = "kube-system"
DEFINITION = "CustomResourceDefinition"
_PREFIX = "cloudrec-addon-"


@dataclass(frozen=True, kw_only=True, order=True)
class ObjectReference:
    """A reference to one object.

    Attributes:
        version: its apiVersion.
        kind: its kind.
        namespace: its namespace; empty for a cluster-scoped object.
        name: its name.
    """

    version: str
    kind: str
    namespace: str
    name: str

    @property
    def full_kind(self) -> str:
        """The kind in the client's notation, GROUP/VERSION/KIND."""
        return f"{self.version}/{self.kind}"


@dataclass(frozen=True, kw_only=True)
class AddonRecord:
    """One add-on that cloudrec has installed.

    Attributes:
        name: its name.
        version: its version.
        sha256: digest of the release that was fetched; empty for cloudrec's templates.
        cluster: the cluster's name.
        owner: the owner in the labels.
        objects: its objects, in the order in which they were applied.
        is_whole: whether the installation was completed.
    """

    name: str
    version: str
    sha256: str
    cluster: str
    owner: str
    objects: tuple[ObjectReference, ...]
    is_whole: bool


def labels_of(name: str, cluster: str, owner: str) -> dict[str, str]:
    """Return the labels of each object of an add-on."""
    return {**cluster_labels(cluster, owner), ADDON: name}


def reference_to(manifest: Mapping[str, Any]) -> ObjectReference:
    """Return the reference to a manifest's object."""
    metadata = manifest["metadata"]
    return ObjectReference(
        version=manifest["apiVersion"],
        kind=manifest["kind"],
        namespace=metadata.get("namespace") or "",
        name=metadata["name"],
    )


def is_ours(found: Mapping[str, Any], cluster: str) -> bool:
    """Return whether an object has cloudrec's labels for this cluster."""
    labels = found["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY) == MANAGER and labels.get(CLUSTER) == cluster


def read(kube: Kube, name: str) -> AddonRecord | None:
    """Return the record of an add-on; None if cloudrec has not installed it."""
    found = kube.get("ConfigMap", _PREFIX + name, namespace=SYSTEM)
    return None if found is None else _record(found)


def read_all(kube: Kube) -> list[AddonRecord]:
    """Return the records of all add-ons that cloudrec has installed."""
    labels = f"{MANAGED_BY}={MANAGER},{ADDON}"
    found = kube.list("ConfigMap", namespace=SYSTEM, labels=labels)
    return [_record(each) for each in found if each["metadata"]["name"].startswith(_PREFIX)]


def write(kube: Kube, record: AddonRecord) -> None:
    """Write the record of an add-on."""
    # Lists without keys, since a ConfigMap is limited to 1 MiB and some releases have a hundred objects.
    rows = [[each.version, each.kind, each.namespace, each.name] for each in record.objects]
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
    """Delete the record of an add-on."""
    kube.delete("ConfigMap", _PREFIX + name, namespace=SYSTEM)


def together(*parts: Iterable[ObjectReference]) -> tuple[ObjectReference, ...]:
    """Return the references of all parts in their order, without repetitions."""
    return tuple(dict.fromkeys(each for part in parts for each in part))


def _record(found: Mapping[str, Any]) -> AddonRecord:
    labels, data = found["metadata"].get("labels") or {}, found.get("data") or {}
    try:
        return AddonRecord(
            name=data["name"],
            version=data["version"],
            sha256=data["sha256"],
            cluster=labels[CLUSTER],
            owner=labels.get("cloudrec/owner", ""),
            objects=tuple(
                ObjectReference(
                    version=str(version), kind=str(kind), namespace=str(namespace), name=str(name)
                )
                for version, kind, namespace, name in safe_json(data["objects"])
            ),
            is_whole=safe_json(data["whole"]) is True,
        )
    except (KeyError, ValueError, TypeError) as error:
        name = found["metadata"]["name"]
        raise PreflightError(
            f"the ConfigMap {name} in {SYSTEM}, which lists cloudrec's objects, is damaged: {error}",
            remedy=f"delete it and install the add-on again: kubectl -n {SYSTEM} delete configmap {name}",
        ) from error
