"""What admission adds to new objects, and what it refuses with 403."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.rules import operators, quotas, security
from cloudrec_sandbox.kubernetes.rules.amounts import quality
from cloudrec_sandbox.kubernetes.rules.kinds import limits
from cloudrec_sandbox.kubernetes.rules.kinds.services import SERVICE_NETWORK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.objects.resources import Resource
    from cloudrec_sandbox.kubernetes.storage.store import Store

_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_LOST_NODE_S = 300
_CONTROLLER_UID, _JOB_NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"


def fill(store: Store, resource: Resource, new: dict[str, Any], old: Mapping[str, Any] | None) -> None:
    """Add what only the cluster knows."""
    if resource.key == "secrets":
        _encode(new)
    if resource.key == "services":
        _give_address(store, new, old)
    if old is not None:
        return
    if resource.key == "pods":
        _fill_pod(store, new)
    elif resource.key == "jobs":
        _fill_job(new)
    elif resource.key == "persistentvolumeclaims":
        _choose_class(store, new)


def _encode(new: dict[str, Any]) -> None:
    for key, value in (new.pop("stringData", None) or {}).items():
        new.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


def _give_address(store: Store, new: dict[str, Any], old: Mapping[str, Any] | None) -> None:
    spec = new["spec"]
    # A service that is replaced without its address keeps it: addresses are not given again while it exists.
    if old is not None and "clusterIP" not in spec and "clusterIP" in old["spec"]:
        spec |= {name: old["spec"][name] for name in ("clusterIP", "clusterIPs") if name in old["spec"]}
    if spec.get("clusterIP") or spec["type"] == "ExternalName":
        return
    taken = {entry.obj["spec"].get("clusterIP") for entry in store.table.all("services")}
    free = next(each for each in map(str, SERVICE_NETWORK.hosts()) if each not in taken)
    spec |= {"clusterIP": free, "clusterIPs": [free]}


def _fill_job(new: dict[str, Any]) -> None:
    spec, metadata = new["spec"], new["metadata"]
    # JobSpec in the API model: with manualSelector the user's own labels and selector are used as they are.
    if spec.get("manualSelector"):
        return
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    labels |= {
        _CONTROLLER_UID: metadata["uid"],
        "controller-uid": metadata["uid"],
        _JOB_NAME: metadata.get("name", ""),
        "job-name": metadata.get("name", ""),
    }
    spec.setdefault("selector", {"matchLabels": {_CONTROLLER_UID: metadata["uid"]}})


def _fill_pod(store: Store, new: dict[str, Any]) -> None:
    spec = new["spec"]
    limits.fill(store, new)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    _add_tolerations(spec)
    value, policy = _priority(store, spec)
    # A value of the user's own stays, so that `check` can refuse it.
    spec |= {"priority": spec.get("priority") or value, "preemptionPolicy": policy}
    new["status"] = {"phase": "Pending", "qosClass": quality(spec)}


def _add_tolerations(spec: dict[str, Any]) -> None:
    # A pod that does not say how long it tolerates this stays this long on a node that is lost
    # (Kubernetes' documentation, "taint-and-toleration").
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        known = spec.get("tolerations") or []
        covered = any(
            each.get("key") in (None, "", key) and each.get("effect") in (None, "", "NoExecute")
            for each in known
        )
        if not covered:
            more = {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _LOST_NODE_S,
            }
            spec["tolerations"] = [*known, more]


def _priority(store: Store, spec: Mapping[str, Any]) -> tuple[int, str]:
    name = spec.get("priorityClassName")
    if not name:
        return 0, "PreemptLowerPriority"
    if name in _SYSTEM_PRIORITIES:
        return _SYSTEM_PRIORITIES[name], "PreemptLowerPriority"
    found = store.table.get("priorityclasses", ("", name))
    if found is None:
        return 0, "PreemptLowerPriority"  # `check` refuses the unknown class
    return found.obj.get("value", 0), found.obj.get("preemptionPolicy", "PreemptLowerPriority")


def _choose_class(store: Store, new: dict[str, Any]) -> None:
    for entry in store.table.all("storageclasses"):
        annotations = entry.obj["metadata"].get("annotations") or {}
        if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
            new["spec"].setdefault("storageClassName", entry.obj["metadata"]["name"])


def check(store: Store, resource: Resource, new: Mapping[str, Any], old: Mapping[str, Any] | None) -> None:
    """Refuse what operators deny, and pods with an unknown account or class or below the security level."""
    operators.check(store, resource, new)
    if resource.key != "pods" or old is not None:
        return
    metadata, spec = new["metadata"], new["spec"]
    name, priority = metadata["name"], spec.get("priorityClassName")
    account = spec["serviceAccountName"]
    if store.table.get("serviceaccounts", (metadata["namespace"], account)) is None:
        why = (
            f'error looking up service account {metadata["namespace"]}/{account}: serviceaccount "{account}" '
            "not found"
        )
        raise errors.forbidden("pods", "", name, why)
    known = priority in _SYSTEM_PRIORITIES or store.table.get("priorityclasses", ("", priority or ""))
    if priority and not known:
        raise errors.forbidden("pods", "", name, f"no PriorityClass with name {priority} was found")
    _check_fixed(store, name, spec, priority)
    limits.refuse(store, new)
    security.check(store, new)
    quotas.check(store, new)


def _check_fixed(store: Store, name: str, spec: Mapping[str, Any], priority: str | None) -> None:
    """Refuse what the plugins Priority and RuntimeClass compute themselves."""
    if spec.get("priority") and not priority:
        why = (
            "the integer value of priority must not be provided in pod spec; priority admission controller "
            "computed 0 from the given PriorityClass name"
        )
        raise errors.forbidden("pods", "", name, why)
    kind = spec.get("runtimeClassName")
    if kind and store.table.get("runtimeclasses", ("", kind)) is None:
        raise errors.forbidden("pods", "", name, f'pod rejected: RuntimeClass "{kind}" not found')
    if spec.get("overhead"):
        why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise errors.forbidden("pods", "", name, why)
