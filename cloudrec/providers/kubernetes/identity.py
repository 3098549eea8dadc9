"""Who runs are: a service account without rights in the cluster, which a cloud may know as somebody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.providers.kubernetes.cluster import ACCOUNT, NAMESPACE
from cloudrec.providers.kubernetes.driver import ObjectDriver

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.cloud.driver import CloudDriver
    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.providers.kubernetes.client import Adopted
    from cloudrec.providers.kubernetes.layout import Layout

# What annotations begin with that are not about a cloud's identity.
_OTHERS = ("cloudrec/", "kubectl.kubernetes.io/", "openshift.io/", "meta.helm.sh/")

KINDS: Mapping[str, AbstractSet[str]] = {ACCOUNT: frozenset({NAMESPACE})}


def resources(layout: Layout) -> list[Resource]:
    """Describe the account."""
    is_foreign = ACCOUNT in layout.foreign
    named = {"name": layout.settings.service_account, "namespace": layout.namespace}
    annotations = {} if is_foreign else {"annotations": dict(layout.settings.service_account_annotations)}
    account = layout.resource(
        ACCOUNT,
        needs=(layout.key(NAMESPACE),),
        properties={**named, **annotations},
        is_shared=is_foreign,
    )
    return [account]


def drivers(adopted: Adopted, namespace: str) -> Mapping[str, CloudDriver]:
    """Return the driver by its kind."""
    return {ACCOUNT: AccountDriver(adopted, namespace, "ServiceAccount")}


class AccountDriver(ObjectDriver):
    """Handles service accounts."""

    kind = ACCOUNT
    changeable = frozenset({"annotations"})

    def body(self, resource: Resource) -> dict[str, Any]:
        """Return an account whose token no pod is given unless it asks."""
        annotations = dict(resource.properties["annotations"])
        return {"metadata": {"annotations": annotations}, "automountServiceAccountToken": False}

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Write its annotations, and take those away that are not asked for any more."""
        super().change(resource, observed, identities=identities)
        asked = resource.properties["annotations"]
        gone = dict.fromkeys(observed.properties["annotations"].keys() - asked.keys())
        if gone:
            name, namespace = resource.properties["name"], resource.properties["namespace"]
            self.kube.patch(self.api, name, {"metadata": {"annotations": gone}}, namespace=namespace)

    def properties(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell what makes it an identity of a cloud."""
        given = found["metadata"].get("annotations") or {}
        return {"annotations": {name: value for name, value in given.items() if not name.startswith(_OTHERS)}}
