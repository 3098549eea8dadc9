"""Pods: which specs are allowed, in a pod or in a template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.rules import containers, names
from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.rules.problems import Problems

RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists")
_CHANGEABLE = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations")
_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
    "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)


@check("pods")
def _pod(change: Change, problems: Problems) -> None:
    if change.old is None:
        check_spec(change.spec, "spec", problems)
    elif (_fixed(change.spec) != _fixed(change.old_spec) and change.old_spec.get("nodeName")) or _fixed(
        {**change.spec, "nodeName": ""}
    ) != _fixed({**change.old_spec, "nodeName": ""}):
        problems.forbidden("spec", _FIXED)


def _fixed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a pod's spec that never changes: all but a few fields."""
    kept = {name: value for name, value in spec.items() if name not in (*_CHANGEABLE, "ephemeralContainers")}
    for name in ("containers", "initContainers"):
        if name in kept:
            kept[name] = [{**each, "image": ""} for each in kept[name]]
    return kept


def check_template(template: Mapping[str, Any], path: str, problems: Problems) -> None:
    """Report what is wrong in a pod template."""
    metadata = template.get("metadata") or {}
    names.check_labels(metadata.get("labels") or {}, f"{path}.labels", problems)
    check_spec(template.get("spec") or {}, f"{path}.spec", problems)


def check_spec(spec: Mapping[str, Any], path: str, problems: Problems) -> None:
    """Report what is wrong in a pod's spec."""
    volumes = _check_volumes(spec.get("volumes") or (), f"{path}.volumes", problems)
    containers.check_all(spec, path, volumes, problems)
    for name, supported in (("restartPolicy", RESTART_POLICIES), ("dnsPolicy", _DNS_POLICIES)):
        if spec.get(name) not in supported:
            problems.unsupported(f"{path}.{name}", spec.get(name, ""), supported)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        value = spec["terminationGracePeriodSeconds"]
        problems.invalid(f"{path}.terminationGracePeriodSeconds", value, "must be greater than or equal to 0")
    if spec.get("activeDeadlineSeconds", 1) < 1:
        problems.invalid(
            f"{path}.activeDeadlineSeconds", spec["activeDeadlineSeconds"], "must be between 1 and 2147483647"
        )
    for name in ("hostname", "subdomain"):
        if spec.get(name) and (why := names.label_problem(spec[name])):
            problems.invalid(f"{path}.{name}", spec[name], why)
    for name in ("serviceAccountName", "priorityClassName"):
        if spec.get(name) and (why := names.subdomain_problem(spec[name])):
            problems.invalid(f"{path}.{name}", spec[name], why)
    names.check_labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector", problems)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        _check_toleration(toleration, f"{path}.tolerations[{index}]", problems)


def _check_toleration(toleration: Mapping[str, Any], path: str, problems: Problems) -> None:
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect", "")
    if operator not in _OPERATORS:
        problems.unsupported(f"{path}.operator", operator, _OPERATORS)
    if not toleration.get("key") and operator != "Exists":
        problems.invalid(
            f"{path}.operator",
            operator,
            'operator must be Exists when `key` is empty, which means "match all values and all keys"',
        )
    if operator == "Exists" and toleration.get("value"):
        problems.invalid(
            f"{path}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'"
        )
    if effect and effect not in _EFFECTS:
        problems.unsupported(f"{path}.effect", effect, _EFFECTS)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        problems.invalid(
            f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"
        )


def _check_volumes(volumes: Any, path: str, problems: Problems) -> set[str]:  # noqa: ANN401 - JSON
    """Report what is wrong in the volumes; return their names."""
    found: set[str] = set()
    for index, volume in enumerate(volumes):
        below, name = f"{path}[{index}]", volume.get("name", "")
        if why := names.label_problem(name) if name else "":
            problems.invalid(f"{below}.name", name, why)
        elif not name:
            problems.required(f"{below}.name")
        if name in found:
            problems.duplicate(f"{below}.name", name)
        found.add(name)
        kinds = [each for each in volume if each != "name"]
        for more in kinds[1:]:
            problems.forbidden(f"{below}.{more}", "may not specify more than 1 volume type")
        if "hostPath" in volume and not volume["hostPath"].get("path"):
            problems.required(f"{below}.hostPath.path")
        _check_empty_dir(volume.get("emptyDir") or {}, f"{below}.emptyDir", problems)
        if "configMap" in volume and not volume["configMap"].get("name"):
            problems.required(f"{below}.configMap.name")
        if "persistentVolumeClaim" in volume and not volume["persistentVolumeClaim"].get("claimName"):
            problems.required(f"{below}.persistentVolumeClaim.claimName")
    return found


def _check_empty_dir(source: Mapping[str, Any], path: str, problems: Problems) -> None:
    medium = source.get("medium", "")
    if medium not in ("", "Memory", "HugePages") and not medium.startswith("HugePages-"):
        problems.unsupported(f"{path}.medium", medium, ("", "Memory", "HugePages"))
