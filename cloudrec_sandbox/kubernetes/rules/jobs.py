"""Jobs and cron jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects.table import copied
from cloudrec_sandbox.kubernetes.rules import names, pods
from cloudrec_sandbox.kubernetes.rules.problems import IMMUTABLE
from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.rules.problems import Problems

_RESTART = ("OnFailure", "Never")
_MODES = ("NonIndexed", "Indexed")
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_REPLACEMENT = ("Failed", "TerminatingOrFailed")
_CONCURRENCY = ("Allow", "Forbid", "Replace")
_OPERATORS = ("In", "NotIn")
_MOST_RULES, _MOST_CODES, _MOST_PODS = 20, 255, 100_000
_FIXED = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_SCHEDULING = ("nodeSelector", "tolerations", "affinity", "schedulingGates")
_CRON_FIELDS = 5
_NOT_NEGATIVE = (
    "parallelism",
    "completions",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)


@check("jobs")
def _job(change: Change, problems: Problems) -> None:
    spec = change.spec
    if change.old is None:
        check_spec(spec, "spec", problems)
        _check_selector(spec, problems)
        _check_name_length(change, problems)
    else:
        _check_numbers(spec, "spec", problems)
        _check_fixed(change, problems)


def _check_fixed(change: Change, problems: Problems) -> None:
    new, old = change.spec, change.old_spec
    problems.unchanged("spec", _FIXED, new, old)
    # Kubernetes' documentation, "job.md": an elastic indexed job changes both numbers together.
    if new.get("completions") != old.get("completions") and not _is_elastic(new, old):
        problems.invalid("spec.completions", new.get("completions"), IMMUTABLE)
    template, before = new.get("template"), old.get("template")
    status = (change.old or {}).get("status") or {}
    # Queueing systems such as Kueue choose the nodes of a suspended job before they start it.
    if old.get("suspend") and "startTime" not in status:
        template, before = _fixed_template(template), _fixed_template(before)
    if template != before:
        problems.invalid("spec.template", new.get("template"), IMMUTABLE)


def _is_elastic(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether completions may change: if they equal parallelism, before and after."""
    same = all(each.get("completions") == each.get("parallelism") for each in (new, old))
    return same and new.get("completionMode") == "Indexed"


def _fixed_template(template: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the part of a template that stays fixed in a suspended job that has never started.

    That is everything but the fields that say where its pods run.
    """
    fixed = copied(template or {})
    fixed.pop("metadata", None)
    spec = fixed.get("spec", {})
    for name in _SCHEDULING:
        spec.pop(name, None)
    # Since 1.36 the resources, too (KEP-5440, MutablePodResourcesForSuspendedJobs).
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        container.pop("resources", None)
    return fixed


def _check_selector(spec: Mapping[str, Any], problems: Problems) -> None:
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    wanted = ((spec.get("selector") or {}).get("matchLabels") or {}).items()
    if not wanted <= labels.items():
        problems.invalid(
            "spec.template.metadata.labels", labels, "`selector` does not match template `labels`"
        )


def _check_name_length(change: Change, problems: Problems) -> None:
    """Check the name's length: pods of an indexed job have the host name NAME-INDEX."""
    spec, name = change.spec, change.new["metadata"].get("name", "")
    if spec.get("completionMode") == "Indexed" and spec.get("completions", 0) > 0:
        last = f"{name}-{spec['completions'] - 1}"
        if why := names.label_problem(last):
            problems.invalid(
                "metadata.name", last, f"will not able to create pod with invalid DNS label: {why}"
            )


def check_spec(spec: Mapping[str, Any], path: str, problems: Problems) -> None:
    """Report what is wrong in a job's spec."""
    _check_numbers(spec, path, problems)
    _check_modes(spec, path, problems)
    template = spec.get("template") or {}
    pods.check_template(template, f"{path}.template", problems)
    restart = (template.get("spec") or {}).get("restartPolicy")
    if restart in pods.RESTART_POLICIES and restart not in _RESTART:
        problems.unsupported(f"{path}.template.spec.restartPolicy", restart, _RESTART)
    policy = spec.get("podFailurePolicy")
    if policy is not None:
        # Kubernetes' documentation, "job.md": the policy judges failed pods, and with OnFailure the kubelet
        # restarts the container in a pod that never fails.
        if restart == "OnFailure":
            problems.invalid(
                f"{path}.template.spec.restartPolicy",
                restart,
                'only "Never" is supported when podFailurePolicy is specified',
            )
        _check_policy(spec, policy, f"{path}.podFailurePolicy", problems)


def _check_numbers(spec: Mapping[str, Any], path: str, problems: Problems) -> None:
    for name in _NOT_NEGATIVE:
        if spec.get(name, 0) < 0:
            problems.invalid(f"{path}.{name}", spec[name], "must be greater than or equal to 0")
    # JobSpec in the API model: at most 10^5 pods at a time in an indexed job.
    indexed = spec.get("completionMode") == "Indexed"
    if indexed and spec.get("parallelism", 0) > _MOST_PODS:
        problems.invalid(
            f"{path}.parallelism",
            spec["parallelism"],
            f"must be less than or equal to {_MOST_PODS} when completion mode is Indexed",
        )


def _check_modes(spec: Mapping[str, Any], path: str, problems: Problems) -> None:
    mode, replacement = spec.get("completionMode"), spec.get("podReplacementPolicy")
    if mode not in _MODES:
        problems.unsupported(f"{path}.completionMode", mode, _MODES)
    if mode == "Indexed" and "completions" not in spec:
        problems.required(f"{path}.completions", "when completion mode is Indexed")
    for name in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        if name in spec and mode != "Indexed":
            problems.invalid(f"{path}.{name}", spec[name], "requires indexed completion mode")
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        problems.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    # JobSpec in the API model: with a podFailurePolicy, Failed is the only allowed value.
    allowed = ("Failed",) if "podFailurePolicy" in spec else _REPLACEMENT
    if replacement not in allowed:
        problems.unsupported(f"{path}.podReplacementPolicy", replacement, allowed)


def _check_policy(spec: Mapping[str, Any], policy: Mapping[str, Any], path: str, problems: Problems) -> None:
    # The limits here and for exit codes are the API model's (PodFailurePolicy and its parts).
    rules = policy.get("rules") or ()
    if len(rules) > _MOST_RULES:
        problems.invalid(f"{path}.rules", len(rules), f"must have at most {_MOST_RULES} items")
    pod = (spec.get("template") or {}).get("spec") or {}
    known = {each.get("name") for kind in ("containers", "initContainers") for each in pod.get(kind) or ()}
    for index, rule in enumerate(rules):
        below, action = f"{path}.rules[{index}]", rule.get("action")
        if action not in _ACTIONS:
            problems.unsupported(f"{below}.action", action, _ACTIONS)
        if action == "FailIndex" and "backoffLimitPerIndex" not in spec:
            problems.invalid(f"{below}.action", action, "requires the backoffLimitPerIndex field to be set")
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if bool(codes) == bool(conditions):
            why = "specifying both OnExitCodes and OnPodConditions is not supported"
            missing = "specifying one of OnExitCodes and OnPodConditions is required"
            problems.invalid(below, rule, why if codes else missing)
        if codes:
            _check_codes(codes, f"{below}.onExitCodes", known, problems)


def _check_codes(wanted: Mapping[str, Any], path: str, known: set[str | None], problems: Problems) -> None:
    codes, operator = wanted.get("values") or [], wanted.get("operator")
    if operator not in _OPERATORS:
        problems.unsupported(f"{path}.operator", operator, _OPERATORS)
    if "containerName" in wanted and wanted["containerName"] not in known:
        problems.invalid(
            f"{path}.containerName",
            wanted["containerName"],
            "must be one of the container or initContainer names in the pod template",
        )
    if not codes:
        problems.invalid(f"{path}.values", codes, "at least one value is required")
    elif len(codes) > _MOST_CODES:
        problems.invalid(f"{path}.values", len(codes), f"must have at most {_MOST_CODES} items")
    if len(set(codes)) < len(codes):
        problems.duplicate(f"{path}.values", next(code for code in codes if codes.count(code) > 1))
    if codes != sorted(codes):
        problems.invalid(f"{path}.values", codes, "must be ordered")
    if operator == "In" and 0 in codes:
        problems.invalid(f"{path}.values[{codes.index(0)}]", 0, "must not be 0 for the In operator")


@check("cronjobs")
def _cron_job(change: Change, problems: Problems) -> None:
    spec = change.spec
    schedule = spec.get("schedule", "")
    if not schedule:
        problems.required("spec.schedule")
    elif not schedule.startswith("@") and len(schedule.split()) != _CRON_FIELDS:
        problems.invalid(
            "spec.schedule",
            schedule,
            f"expected exactly {_CRON_FIELDS} fields, found {len(schedule.split())}",
        )
    if spec.get("concurrencyPolicy") not in _CONCURRENCY:
        problems.unsupported("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), _CONCURRENCY)
    template = ((spec.get("jobTemplate") or {}).get("spec") or {}).get("template") or {}
    path = "spec.jobTemplate.spec.template"
    pods.check_template(template, path, problems)
    restart = (template.get("spec") or {}).get("restartPolicy")
    if restart in pods.RESTART_POLICIES and restart not in _RESTART:
        problems.unsupported(f"{path}.spec.restartPolicy", restart, _RESTART)
