"""The runs' service account: no rights in the cluster; annotations may bind it to a cloud identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import FREE
from cloudrec.providers.kubernetes.api.driver import ObjectDriver, ObjectProperties
from cloudrec.providers.kubernetes.cluster.cluster import ACCOUNT, NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.providers.base.driver import CloudDriver
    from cloudrec.providers.kubernetes.api.client import Adopted
    from cloudrec.providers.kubernetes.layout import KubeLayout

# Prefixes of annotations that other tools write; they are not part of a cloud identity.
_OTHERS = ("cloudrec/", "kubectl.kubernetes.io/", "openshift.io/", "meta.helm.sh/")

KINDS: Mapping[str, AbstractSet[str]] = {ACCOUNT: frozenset({NAMESPACE})}


def resources(layout: KubeLayout) -> list[Resource]:
    """Return the service account."""
    is_foreign = ACCOUNT in layout.foreign
    account = layout.resource(
        ACCOUNT,
        needs=(layout.key(NAMESPACE),),
        properties=ServiceAccountProperties(
            name=layout.settings.service_account,
            namespace=layout.namespace,
            annotations=None if is_foreign else dict(layout.settings.service_account_annotations),
        ),
        is_shared=is_foreign,
        hourly_usd=FREE,
    )
    return [account]


def drivers(adopted: Adopted, namespace: str) -> Mapping[str, CloudDriver]:
    """Return kind -> driver."""
    return {ACCOUNT: KubeAccountDriver(adopted, namespace, "ServiceAccount")}


@dataclass(frozen=True, kw_only=True)
class ServiceAccountProperties(ObjectProperties):
    """The requested service account.

    Attributes:
        annotations: the annotations that bind it to a cloud identity; None for an account that existed before
            `up`, which is not changed.
    """

    annotations: dict[str, str] | None


class KubeAccountDriver(ObjectDriver[ServiceAccountProperties]):
    """The driver of service accounts."""

    kind = ACCOUNT
    takes_unmarked = False
    may_be_others = True
    changeable = frozenset({"annotations"})

    def body(self, resource: Resource[ServiceAccountProperties]) -> dict[str, Any]:
        """Return an account whose token is not mounted into pods by default."""
        annotations = dict(resource.properties.annotations or {})
        return {"metadata": {"annotations": annotations}, "automountServiceAccountToken": False}

    def change(
        self,
        resource: Resource[ServiceAccountProperties],
        observed: Observed,
        *,
        identities: Mapping[str, str],
    ) -> None:
        """Write the requested annotations, and remove the others that bind it to a cloud identity."""
        # A patch merges annotations: it removes one only if its value is null.
        super().change(resource, observed, identities=identities)
        asked = resource.properties.annotations or {}
        gone = dict.fromkeys(observed.properties["annotations"].keys() - asked.keys())
        if gone:
            name, namespace = resource.properties.name, resource.properties.namespace or ""
            self.kube.patch(self.api, name, {"metadata": {"annotations": gone}}, namespace=namespace)

    def properties(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the annotations that bind it to a cloud identity."""
        given = found["metadata"].get("annotations") or {}
        return {"annotations": {name: value for name, value in given.items() if not name.startswith(_OTHERS)}}
