"""The kinds with few rules: configuration, services, storage, workloads, RBAC."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors, selectors
from cloudrec_sandbox.kubernetes.rules import pods
from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.rules.problems import Problems

_MOST_BYTES = 1_048_576
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_IMMUTABLE = "field is immutable when `immutable` is set"
_KEY_RULE = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_USER_PRIORITY = 1_000_000_000
_CLAIM_FIXED = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound "
    "claims"
)
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


@check("configmaps", "secrets")
def _configuration(change: Change, problems: Problems) -> None:
    new, old = change.new, change.old or {}
    encoded = new.get("data" if change.resource.key == "secrets" else "binaryData") or {}
    size = sum(len(value.encode()) for value in (new.get("data") or {}).values())
    for value in encoded.values():
        try:
            size += len(base64.b64decode(value, validate=True))
        except (binascii.Error, ValueError):
            # The decoder finds it, before any rule.
            kind, what = change.resource.kind, "illegal base64 data at input byte 0"
            told = f'{kind} in version "v1" cannot be handled as a {kind}: {what}'
            raise errors.bad_request(told) from None
    if size > _MOST_BYTES:
        problems.too_long("data" if change.resource.key == "secrets" else "", _MOST_BYTES)
    for name in ("data", "binaryData"):
        for key in new.get(name) or ():
            if not _KEY.fullmatch(key):
                problems.invalid(f"{name}[{key}]", key, _KEY_RULE)
    if old and new.get("type") != old.get("type"):
        problems.invalid("type", new.get("type"), "field is immutable")
    if old.get("immutable"):
        _check_immutable(new, old, problems)


def _check_immutable(new: Mapping[str, Any], old: Mapping[str, Any], problems: Problems) -> None:
    if not new.get("immutable"):
        problems.forbidden("immutable", _IMMUTABLE)
    for name in ("data", "binaryData"):
        if new.get(name) != old.get(name):
            problems.forbidden(name, _IMMUTABLE)


@check("services")
def _service(change: Change, problems: Problems) -> None:
    spec, old = change.spec, change.old_spec
    if spec.get("type") not in _TYPES:
        problems.unsupported("spec.type", spec.get("type"), _TYPES)
    ports = spec.get("ports") or []
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        problems.required("spec.ports")
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            problems.required(f"spec.ports[{index}].name")
    changed = change.old is not None and spec.get("clusterIP") != old.get("clusterIP")
    if changed and "ExternalName" not in (spec.get("type"), old.get("type")):
        problems.invalid("spec.clusterIPs[0]", spec.get("clusterIPs"), "may not change once set")


@check("daemonsets", "deployments", "statefulsets", "replicasets")
def _workload(change: Change, problems: Problems) -> None:
    spec = change.spec
    selector, template = spec.get("selector") or {}, spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        problems.required("spec.selector")
    elif not selectors.matches(selector, labels):
        problems.invalid(
            "spec.template.metadata.labels", labels, "`selector` does not match template `labels`"
        )
    if change.old is not None:
        problems.unchanged("spec", ("selector",), spec, change.old_spec)
        if change.resource.key == "statefulsets":
            problems.unchanged(
                "spec", ("serviceName", "volumeClaimTemplates", "podManagementPolicy"), spec, change.old_spec
            )
    pods.check_template(template, "spec.template", problems)
    restart = (template.get("spec") or {}).get("restartPolicy")
    if restart in ("OnFailure", "Never"):
        problems.unsupported("spec.template.spec.restartPolicy", restart, ("Always",))


@check("persistentvolumeclaims")
def _claim(change: Change, problems: Problems) -> None:
    spec = change.spec
    if not spec.get("accessModes"):
        problems.required("spec.accessModes", "at least 1 access mode is required")
    for mode in spec.get("accessModes") or ():
        if mode not in _MODES:
            problems.unsupported("spec.accessModes", mode, _MODES)
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        problems.required("spec.resources[storage]")
    if change.old is not None and _but_size(spec) != _but_size(change.old_spec):
        problems.forbidden("spec", _CLAIM_FIXED)


def _but_size(spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return the fixed part of a claim's spec; its volume and its class can be set once."""
    return {
        name: value
        for name, value in spec.items()
        if name not in ("resources", "volumeName", "volumeAttributesClassName", "storageClassName")
    }


@check("persistentvolumes")
def _volume(change: Change, problems: Problems) -> None:
    spec = change.spec
    if not spec.get("accessModes"):
        problems.required("spec.accessModes")
    if "storage" not in (spec.get("capacity") or {}):
        problems.required("spec.capacity")
    if change.old is not None:
        for name in ("csi", "nfs", "hostPath", "local"):
            if spec.get(name) != change.old_spec.get(name):
                problems.forbidden(
                    "spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation"
                )


@check("storageclasses")
def _storage_class(change: Change, problems: Problems) -> None:
    if not change.new.get("provisioner"):
        problems.required("provisioner")
    if change.old is not None:
        for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
            if change.new.get(name) != change.old.get(name):
                problems.forbidden(name, f"updates to {name} are forbidden.")


@check("priorityclasses")
def _priority_class(change: Change, problems: Problems) -> None:
    new, name = change.new, change.new["metadata"]["name"]
    if new.get("value", 0) > _USER_PRIORITY and not name.startswith("system-"):
        problems.forbidden("value", f"maximum allowed value of a user defined priority is {_USER_PRIORITY}")
    for field in ("value", "preemptionPolicy"):
        if change.old is not None and new.get(field, 0) != change.old.get(field, 0):
            problems.forbidden(field, "may not be changed in an update.")


@check("poddisruptionbudgets")
def _budget(change: Change, problems: Problems) -> None:
    spec = change.spec
    if "minAvailable" in spec and "maxUnavailable" in spec:
        problems.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")


@check("rolebindings", "clusterrolebindings")
def _binding(change: Change, problems: Problems) -> None:
    if change.old is not None and change.new.get("roleRef") != change.old.get("roleRef"):
        problems.invalid("roleRef", change.new.get("roleRef"), "cannot change roleRef")
    for index, subject in enumerate(change.new.get("subjects") or ()):
        if subject.get("kind") not in ("ServiceAccount", "User", "Group"):
            problems.unsupported(
                f"subjects[{index}].kind", subject.get("kind"), ("ServiceAccount", "User", "Group")
            )
        # `ValidateRoleBindingSubject`: only a binding without a namespace needs the account's.
        is_whole = change.resource.key == "clusterrolebindings"
        if is_whole and subject.get("kind") == "ServiceAccount" and not subject.get("namespace"):
            problems.required(f"subjects[{index}].namespace")


@check("roles", "clusterroles")
def _role(change: Change, problems: Problems) -> None:
    for index, rule in enumerate(change.new.get("rules") or ()):
        below = f"rules[{index}]"
        if not rule.get("verbs"):
            problems.required(f"{below}.verbs", "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            continue
        if not rule.get("apiGroups"):
            problems.required(f"{below}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            problems.required(f"{below}.resources", "resource rules must supply at least one resource")
