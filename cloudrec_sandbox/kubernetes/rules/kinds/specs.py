"""Pods: probes, hooks, volumes, security contexts, placement; and what a change may change."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.rules.amounts import amount
from cloudrec_sandbox.kubernetes.rules.kinds.services import check_port
from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.rules.problems import Problems

_IDS = "must be between 0 and 2147483647, inclusive"
_MOST_MODE = 0o777
_GROUP_CHANGES = ("Always", "OnRootMismatch")
_SECCOMP = ("Localhost", "RuntimeDefault", "Unconfined")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "grpc", "httpGet", "tcpSocket")
_HOOKS = ("exec", "httpGet", "sleep", "tcpSocket")
_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_HOST_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_RESTART = ("Always", "Never", "OnFailure")
_RULE_ACTIONS = ("Restart", "RestartAllContainers")
_OPERATORS = ("In", "NotIn")
_MOST_RULES, _MOST_CODES = 20, 255
_FIELD = re.compile(
    r"metadata\.(name|namespace|uid|labels|annotations)|metadata\.(labels|annotations)\['.+'\]|"
    r"spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?)"
)
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_FIXED = "pod updates may not change fields other than some that are named in the documentation of pods"
_OVERRIDES = "must be greater than or equal to 0"


@check("pods")
def _pod(change: Change, problems: Problems) -> None:
    new, old = change.spec, change.old_spec
    if change.old is None:
        check_spec(new, "spec", problems)
        return
    deadline, before = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if before is not None and (deadline is None or deadline > before):
        problems.invalid("spec.activeDeadlineSeconds", deadline, f"must be less than or equal to {before}")
    grace = "terminationGracePeriodSeconds"
    # A negative grace, which older versions stored, may become 1; nothing else may change.
    if new.get(grace) != old.get(grace) and not (old.get(grace, 0) < 0 and new.get(grace) == 1):
        problems.forbidden("spec", _FIXED)


@check("jobs", "cronjobs", "deployments", "daemonsets", "statefulsets", "replicasets")
def _template(change: Change, problems: Problems) -> None:
    if change.old is not None:
        return
    spec, path = change.spec, "spec"
    if change.resource.key == "cronjobs":
        spec, path = (spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec"
    check_spec((spec.get("template") or {}).get("spec") or {}, f"{path}.template.spec", problems)


def check_spec(spec: Mapping[str, Any], path: str, problems: Problems) -> None:
    """Report what is wrong in a pod's spec, besides what `rules.pods` reports."""
    for index, container in enumerate(spec.get("initContainers") or ()):
        below = f"{path}.initContainers[{index}]"
        policy = container.get("restartPolicy")
        if policy is not None and policy not in _RESTART:
            problems.unsupported(f"{below}.restartPolicy", policy, _RESTART)
        _check_restart_rules(container, below, problems)
        if container.get("restartPolicy") != "Always":
            for name in (
                *(each for each in _PROBES if each in container),
                *(["lifecycle"] if container.get("lifecycle") else []),
            ):
                problems.forbidden(
                    f"{below}.{name}", "may not be set for init containers without restartPolicy=Always"
                )
        else:
            _check_container(container, below, problems)
    for index, container in enumerate(spec.get("containers") or ()):
        _check_container(container, f"{path}.containers[{index}]", problems)
        _check_restart_rules(container, f"{path}.containers[{index}]", problems)
    for index, volume in enumerate(spec.get("volumes") or ()):
        _check_volume(volume, f"{path}.volumes[{index}]", problems)
    _check_security(spec.get("securityContext") or {}, f"{path}.securityContext", problems)
    _check_placement(spec, path, problems)
    if spec.get("dnsPolicy") == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        problems.required(f"{path}.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")


def _check_container(container: Mapping[str, Any], path: str, problems: Problems) -> None:
    for name in _PROBES:
        if name in container:
            _check_probe(container[name], f"{path}.{name}", problems, is_readiness=name == "readinessProbe")
    for name, hook in (container.get("lifecycle") or {}).items():
        if name in ("preStop", "postStart") and not any(each in hook for each in _HOOKS):
            problems.required(f"{path}.lifecycle.{name}", "must specify a handler type")
    context = container.get("securityContext") or {}
    for name in ("runAsUser", "runAsGroup"):
        if context.get(name, 0) < 0:
            problems.invalid(f"{path}.securityContext.{name}", context[name], _IDS)
    _check_seccomp(context, f"{path}.securityContext", problems)
    policy = container.get("restartPolicy")
    if policy is not None and policy not in _RESTART:
        problems.unsupported(f"{path}.restartPolicy", policy, _RESTART)
    for index, each in enumerate(container.get("env") or ()):
        field = ((each.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
        if field is not None and not _FIELD.fullmatch(field):
            where = f"{path}.env[{index}].valueFrom.fieldRef.fieldPath"
            problems.invalid(where, field, "error converting fieldPath: field label not supported")


def _check_restart_rules(container: Mapping[str, Any], path: str, problems: Problems) -> None:
    """Report what is wrong in the rules for restarts (KEP-5307), each as a 1.36.2 API server answered."""
    rules = container.get("restartPolicyRules") or ()
    if rules and container.get("restartPolicy") is None:
        text = "must specify restartPolicy when restart rules are used"
        problems.required(f"{path}.restartPolicy", text)
    if len(rules) > _MOST_RULES:
        problems.too_many(f"{path}.restartPolicyRules", len(rules), _MOST_RULES)
        return
    for index, rule in enumerate(rules):
        below = f"{path}.restartPolicyRules[{index}]"
        if rule.get("action", "") not in _RULE_ACTIONS:
            problems.unsupported(f"{below}.action", rule.get("action", ""), _RULE_ACTIONS)
        codes = rule.get("exitCodes")
        if codes is None:
            problems.required(f"{below}.exitCodes", "must be specified")
            continue
        if codes.get("operator", "") not in _OPERATORS:
            problems.unsupported(f"{below}.exitCodes.operator", codes.get("operator", ""), _OPERATORS)
        if (count := len(codes.get("values") or ())) > _MOST_CODES:
            problems.too_many(f"{below}.exitCodes.values", count, _MOST_CODES)


def _check_probe(probe: Mapping[str, Any], path: str, problems: Problems, *, is_readiness: bool) -> None:
    if not any(name in probe for name in _HANDLERS):
        problems.required(path, "must specify a handler type")
    for name in _NUMBERS:
        if probe.get(name, 0) < 0:
            problems.invalid(f"{path}.{name}", probe[name], _OVERRIDES)
    if not is_readiness and probe.get("successThreshold", 1) != 1:
        problems.invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")
    if "exec" in probe and not (probe["exec"] or {}).get("command"):
        problems.required(f"{path}.exec.command")
    for name in ("tcpSocket", "httpGet"):
        if name in probe:
            check_port(probe[name].get("port", 0), f"{path}.{name}.port", problems)


def _check_volume(volume: Mapping[str, Any], path: str, problems: Problems) -> None:
    kind = (volume.get("hostPath") or {}).get("type") or ""
    if kind not in _HOST_TYPES:
        problems.unsupported(f"{path}.hostPath.type", kind, _HOST_TYPES)
    for name in ("configMap", "secret", "downwardAPI", "projected"):
        mode = (volume.get(name) or {}).get("defaultMode", 0)
        if not 0 <= mode <= _MOST_MODE:
            problems.invalid(
                f"{path}.{name}.defaultMode",
                mode,
                "must be a number between 0 and 0777 (octal), both inclusive",
            )
    size = (volume.get("emptyDir") or {}).get("sizeLimit")
    if size is not None and amount(size) < 0:
        problems.forbidden(f"{path}.emptyDir.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _check_security(context: Mapping[str, Any], path: str, problems: Problems) -> None:
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        if context.get(name, 0) < 0:
            problems.invalid(f"{path}.{name}", context[name], _IDS)
    _check_seccomp(context, path, problems)
    change = context.get("fsGroupChangePolicy")
    if change is not None and change not in _GROUP_CHANGES:
        problems.unsupported(f"{path}.fsGroupChangePolicy", change, _GROUP_CHANGES)
    for index, each in enumerate(context.get("sysctls") or ()):
        if not _SYSCTL.fullmatch(each.get("name", "")):
            problems.invalid(
                f"{path}.sysctls[{index}].name", each.get("name", ""), "must match the pattern of sysctls"
            )


def _check_seccomp(context: Mapping[str, Any], path: str, problems: Problems) -> None:
    kind = (context.get("seccompProfile") or {}).get("type")
    if kind is not None and kind not in _SECCOMP:
        problems.unsupported(f"{path}.seccompProfile.type", kind, _SECCOMP)


def _check_placement(spec: Mapping[str, Any], path: str, problems: Problems) -> None:
    for index, each in enumerate(spec.get("topologySpreadConstraints") or ()):
        below = f"{path}.topologySpreadConstraints[{index}]"
        if each.get("maxSkew", 0) <= 0:
            problems.invalid(f"{below}.maxSkew", each.get("maxSkew", 0), "must be greater than zero")
        if each.get("whenUnsatisfiable") not in _UNSATISFIABLE:
            problems.unsupported(f"{below}.whenUnsatisfiable", each.get("whenUnsatisfiable"), _UNSATISFIABLE)
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    wanted = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(required)
    if wanted is not None and not wanted.get("nodeSelectorTerms"):
        where = f"{path}.affinity.nodeAffinity.{required}.nodeSelectorTerms"
        problems.required(where, "must have at least one node selector term")
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = ((spec.get("affinity") or {}).get(kind) or {}).get(required) or ()
        for index, term in enumerate(terms):
            if not term.get("topologyKey"):
                where = f"{path}.affinity.{kind}.{required}[{index}].topologyKey"
                problems.required(where, "can not be empty")
    if spec.get("schedulingGates") and spec.get("nodeName"):
        problems.forbidden(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared")
