"""ConfigMaps, Secrets, claims, priority classes, namespaces."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING

from cloudrec_sandbox.kubernetes.rules import names
from cloudrec_sandbox.kubernetes.rules.amounts import amount
from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.rules.problems import Problems

_PREFIX = "pod-security.kubernetes.io/"
_LEVELS = ("privileged", "baseline", "restricted")
_VERSION = re.compile(r"latest|v1\.(0|[1-9][0-9]*)")
# `ValidateSecret`: the keys that a Secret of a type must have.
_KEYS = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_ACCOUNT = "kubernetes.io/service-account.name"
_VOLUME_MODES = ("Block", "Filesystem")
_PREEMPTION = ("Never", "PreemptLowerPriority")


@check("namespaces")
def _namespace(change: Change, problems: Problems) -> None:
    """Check the labels of pod security: `ValidateNamespace` of k8s.io/pod-security-admission."""
    labels = change.new["metadata"].get("labels") or {}
    for mode in ("enforce", "audit", "warn"):
        level, version = labels.get(f"{_PREFIX}{mode}"), labels.get(f"{_PREFIX}{mode}-version")
        if level is not None and level not in _LEVELS:
            problems.invalid(
                f"metadata.labels[{_PREFIX}{mode}]", level, f"must be one of {', '.join(_LEVELS)}"
            )
        if version is not None and not _VERSION.fullmatch(version):
            why = 'must be "latest" or "v1.x"'
            problems.invalid(f"metadata.labels[{_PREFIX}{mode}-version]", version, why)


@check("configmaps")
def _config_map(change: Change, problems: Problems) -> None:
    for key in (change.new.get("data") or {}).keys() & (change.new.get("binaryData") or {}).keys():
        problems.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")


@check("secrets")
def _secret(change: Change, problems: Problems) -> None:
    data: Mapping[str, str] = change.new.get("data") or {}
    kind = change.new.get("type", "")
    for key in _KEYS.get(kind, ()):
        if key not in data:
            problems.required(f"data[{key}]")
        elif key.startswith(".docker") and not _is_json(data[key]):
            problems.invalid(f"data[{key}]", "<secret contents redacted>", "invalid character")
    annotations = change.new["metadata"].get("annotations") or {}
    if kind == "kubernetes.io/service-account-token" and not annotations.get(_ACCOUNT):
        problems.required(f"metadata.annotations[{_ACCOUNT}]")


def _is_json(text: str) -> bool:
    try:
        json.loads(base64.b64decode(text))
    except (ValueError, binascii.Error):
        return False
    return True


@check("persistentvolumeclaims")
def _claim(change: Change, problems: Problems) -> None:
    spec = change.spec
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is not None and amount(storage) <= 0:
        problems.invalid("spec.resources[storage]", storage, "must be greater than zero")
    if spec.get("volumeMode") not in _VOLUME_MODES:
        problems.unsupported("spec.volumeMode", spec.get("volumeMode"), _VOLUME_MODES)
    name = spec.get("storageClassName")
    if name and (why := names.subdomain_problem(name)):
        problems.invalid("spec.storageClassName", name, why)
    phase = ((change.old or {}).get("status") or {}).get("phase")
    if (
        change.old is not None
        and phase != "Bound"
        and spec.get("resources") != change.old_spec.get("resources")
    ):
        why = "spec is immutable after creation except resources.requests for bound claims"
        problems.forbidden("spec", why)


@check("priorityclasses")
def _priority_class(change: Change, problems: Problems) -> None:
    name, policy = change.new["metadata"]["name"], change.new.get("preemptionPolicy")
    if name.startswith("system-") and name not in ("system-cluster-critical", "system-node-critical"):
        problems.forbidden("metadata.name", 'priority class names with "system-" prefix are reserved')
    if policy not in _PREEMPTION:
        problems.unsupported("preemptionPolicy", policy, _PREEMPTION)
