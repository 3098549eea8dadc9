"""Foreign objects in a namespace; a namespace is deleted only if it has none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.client.errors import AbsentError
from cloudrec.kubernetes.manifests.names import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.client.kinds import Kind

_SHOWN = 4  # foreign objects that a message names
_ASKED = 8  # kinds that are listed concurrently
# Kinds that controllers derive from other objects (Services, containers), without an owner reference.
_DERIVED = {("", "Endpoints"), ("", "Event"), ("events.k8s.io", "Event"), ("metrics.k8s.io", "PodMetrics")}
# Objects that Kubernetes and its distributions create in every namespace.
_ACCOUNTS = {
    "default",  # Kubernetes
    "builder",  # OpenShift: builds
    "deployer",  # OpenShift: deployments
    "pipeline",  # OpenShift Pipelines
}
_INBORN = {
    *(("ServiceAccount", name) for name in _ACCOUNTS),
    ("ConfigMap", "kube-root-ca.crt"),  # Kubernetes: the API server's authority
    ("ConfigMap", "openshift-service-ca.crt"),  # OpenShift: the service authority
    ("ConfigMap", "istio-ca-root-cert"),  # Istio
    ("ConfigMap", "istio-ca-crl"),  # Istio
    ("ConfigMap", "config-service-cabundle"),  # OpenShift Pipelines
    ("ConfigMap", "config-trusted-cabundle"),  # OpenShift Pipelines
    ("RoleBinding", "system:deployers"),  # OpenShift
    ("RoleBinding", "system:image-builders"),  # OpenShift
    ("RoleBinding", "system:image-pullers"),  # OpenShift
}
_TOKENS = {"kubernetes.io/service-account-token": "-token-", "kubernetes.io/dockercfg": "-dockercfg-"}
_OF_ACCOUNT = (
    "kubernetes.io/service-account.name",
    "openshift.io/internal-registry-auth-token.service-account",
)


def tenants(kube: Kube, namespace: str, cluster: str) -> list[str]:
    """Return the objects of a namespace that neither this cluster nor Kubernetes made, as KIND NAME.

    Args:
        kube: the API server.
        namespace: the namespace; objects of every kind that the server can list are considered.
        cluster: the cluster whose objects are not foreign.

    Raises:
        KubeError: a kind cannot be listed, so foreign objects cannot be ruled out.
    """
    kinds = kube.kinds.listable()
    spaced = {(_group(kind.version), kind.name) for kind in kinds if kind.namespaced}
    asked = [kind for kind in kinds if kind.namespaced and (_group(kind.version), kind.name) not in _DERIVED]

    def look(kind: Kind) -> Sequence[Mapping[str, Any]]:
        try:
            wanted = f"{CLUSTER}!={cluster}"
            return kube.list(f"{kind.version}/{kind.name}", namespace=namespace, labels=wanted)
        except AbsentError:  # the kind was removed a moment ago
            return ()

    found: dict[str, str] = {}
    with ThreadPoolExecutor(_ASKED, thread_name_prefix="tenants") as pool:
        for kind, listed in zip(asked, pool.map(look, asked), strict=True):
            for each in listed:
                if not (_is_owned(each, spaced) or _is_inborn(each, kind) or _is_ended(kube, each, kind)):
                    found.setdefault(each["metadata"]["uid"], f"{kind.name} {each['metadata']['name']}")
    return sorted(found.values())


def kept(kube: Kube, namespace: str, cluster: str) -> str:
    """Return why a namespace is not deleted: the objects in it that cloudrec did not make; empty for none."""
    others = tenants(kube, namespace, cluster)
    if not others:
        return ""
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    shown = ", ".join(others[:_SHOWN])
    return f"namespace {namespace} is kept, because cloudrec did not make {shown}{more} in it"


def _group(version: str) -> str:
    return version.rpartition("/")[0]


def _is_owned(found: Mapping[str, Any], spaced: set[tuple[str, str]]) -> bool:
    """Return whether an object in the namespace owns it; then only the owner counts."""
    owners = found["metadata"].get("ownerReferences") or ()
    return any((_group(owner["apiVersion"]), owner["kind"]) in spaced for owner in owners)


def _is_ended(kube: Kube, found: Mapping[str, Any], kind: Kind) -> bool:
    """Return whether it is the lease of an operator whose pod is gone: the pod leaves it behind."""
    if (_group(kind.version), kind.name) != ("coordination.k8s.io", "Lease"):
        return False
    holder = str((found.get("spec") or {}).get("holderIdentity") or "").partition("_")[0]
    return bool(holder) and kube.get("Pod", holder, namespace=found["metadata"]["namespace"]) is None


def _is_inborn(found: Mapping[str, Any], kind: Kind) -> bool:
    """Return whether every namespace has it, or it is a service account's secret; then the account counts."""
    name = found["metadata"]["name"]
    if (kind.name, name) in _INBORN and _group(kind.version) in {"", "rbac.authorization.k8s.io"}:
        return True
    infix = _TOKENS.get(str(found.get("type", ""))) if kind.name == "Secret" else None
    given = found["metadata"].get("annotations") or {}
    accounts = [given[key] for key in _OF_ACCOUNT if key in given]
    return infix is not None and any(name.startswith(f"{account}{infix}") for account in accounts)
