"""PersistentVolumeClaims: bound to a matching volume, or to one that their class provides."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from cloudrec_sandbox.kubernetes.controllers.base import Controller
from cloudrec_sandbox.kubernetes.objects.quantities import amount
from cloudrec_sandbox.kubernetes.storage.mirror import is_ending, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec_sandbox.kubernetes.storage.mirror import Key, Object


class ClaimController(Controller):
    """Binds claims."""

    resource: ClassVar[str] = "persistentvolumeclaims"
    kind: ClassVar[str] = "PersistentVolumeClaim"
    source: ClassVar[str] = "persistentvolume-controller"

    def look(self, obj: Object) -> None:
        """Bind a claim, or say why it waits."""
        if is_ending(obj) or obj.get("status", {}).get("phase") == "Bound":
            return
        volume = self._fitting(obj) or self._provided(obj)
        if volume is None:
            if obj.get("status", {}).get("phase") != "Pending":
                self.cluster.patch_status(self.resource, obj, {"phase": "Pending"})
            self._explain(obj)
            return
        self._bind(obj, volume)

    def concerned(self, resource: str, _obj: Object) -> Iterable[Key]:
        """Return the claims that wait: a new volume or class may fit them."""
        if resource not in ("persistentvolumes", "storageclasses"):
            return ()
        return [
            key_of(each)
            for each in self.cluster.mirror.all(self.resource)
            if each.get("status", {}).get("phase") != "Bound"
        ]

    def _fitting(self, obj: Object) -> Object | None:
        spec = obj["spec"]
        for volume in self.cluster.mirror.all("persistentvolumes"):
            own = volume["spec"]
            claim = own.get("claimRef")
            # A volume with a claimRef is reserved for that claim, even before it is bound.
            if claim is not None and (claim.get("namespace"), claim.get("name")) != key_of(obj):
                continue
            if spec.get("volumeName") not in (None, "", volume["metadata"]["name"]):
                continue
            is_same_class = (own.get("storageClassName") or "") == (spec.get("storageClassName") or "")
            is_enough = amount(own["capacity"]["storage"]) >= amount(spec["resources"]["requests"]["storage"])
            if is_same_class and is_enough and set(spec["accessModes"]) <= set(own["accessModes"]):
                return volume
        return None

    def _provided(self, obj: Object) -> Object | None:
        spec = obj["spec"]
        storage = self.cluster.mirror.get("storageclasses", "", spec.get("storageClassName") or "")
        # Volumes of this provisioner are made by people: nothing is provided for a claim.
        if storage is None or storage["provisioner"] == "kubernetes.io/no-provisioner":
            return None
        name = f"pvc-{obj['metadata']['uid']}"
        driver = {"driver": storage["provisioner"], "volumeHandle": name}
        volume = {
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "storageClassName": storage["metadata"]["name"],
                "persistentVolumeReclaimPolicy": storage.get("reclaimPolicy", "Delete"),
                "csi": driver,
            },
        }
        self.record(obj, "ProvisioningSucceeded", f"Successfully provisioned volume {name}")
        return self.cluster.store.create("persistentvolumes", volume)

    def _bind(self, obj: Object, volume: Object) -> None:
        space, name = key_of(obj)
        reference = {
            "apiVersion": "v1",
            "kind": self.kind,
            "namespace": space,
            "name": name,
            "uid": obj["metadata"]["uid"],
        }
        store, own = self.cluster.store, volume["metadata"]["name"]
        # The volume first: two claims must not get the same one if the second change fails.
        store.patch("persistentvolumes", None, own, {"spec": {"claimRef": reference}})
        self.cluster.patch_status("persistentvolumes", volume, {"phase": "Bound"})
        store.patch(self.resource, space, name, {"spec": {"volumeName": own}})
        status = {
            "phase": "Bound",
            "accessModes": volume["spec"]["accessModes"],
            "capacity": volume["spec"]["capacity"],
        }
        self.cluster.patch_status(self.resource, obj, status)

    def _explain(self, obj: Object) -> None:
        wanted = obj["spec"].get("storageClassName")
        if wanted:
            self.record(
                obj, "ProvisioningFailed", f'storageclass.storage.k8s.io "{wanted}" not found', warning=True
            )
        else:
            text = "no persistent volumes available for this claim and no storage class is set"
            self.record(obj, "FailedBinding", text)
