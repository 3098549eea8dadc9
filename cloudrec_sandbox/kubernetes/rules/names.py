"""Names, labels and annotations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.kubernetes.objects.resources import Resource
    from cloudrec_sandbox.kubernetes.rules.problems import Problems

LABEL_LENGTH, SUBDOMAIN_LENGTH = 63, 253
_ANNOTATIONS_SIZE = 262_144
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_PATH_NAMES = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
_LONGEST_CRON = 52
_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def label_problem(name: str) -> str:
    """Return why a name is no DNS label; empty if it is one."""
    if len(name) > LABEL_LENGTH:
        return f"must be no more than {LABEL_LENGTH} bytes"
    return "" if _LABEL.fullmatch(name) else _LABEL_RULE


def subdomain_problem(name: str) -> str:
    """Return why a name is no DNS subdomain; empty if it is one."""
    if len(name) > SUBDOMAIN_LENGTH:
        return f"must be no more than {SUBDOMAIN_LENGTH} bytes"
    return "" if _SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_RULE


def _name_problem(resource: Resource, name: str) -> str:
    if resource.key in _PATH_NAMES:
        wrong = name in (".", "..") or "/" in name or "%" in name
        return "may not be '.' or '..', nor contain '/' or '%'" if wrong else ""
    # Since 1.36 a Service's name may begin with a digit (RelaxedServiceNameValidation).
    if resource.key in ("namespaces", "services"):
        return label_problem(name)
    if resource.key == "cronjobs" and len(name) > _LONGEST_CRON:
        return f"must be no more than {_LONGEST_CRON} characters"
    return subdomain_problem(name)


def check_metadata(resource: Resource, metadata: Mapping[str, Any], problems: Problems) -> None:
    """Report names, labels and annotations that are not allowed."""
    name = metadata.get("name", "")
    if not name:
        problems.required("metadata.name", "name or generateName is required")
    elif why := _name_problem(resource, name):
        problems.invalid("metadata.name", name, why)
    check_labels(metadata.get("labels") or {}, "metadata.labels", problems)
    _check_finalizers(metadata.get("finalizers") or (), problems)
    _check_owners(metadata.get("ownerReferences") or (), problems)
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        _check_key(key.lower(), "metadata.annotations", problems)
    size = sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS_SIZE:
        problems.too_long("metadata.annotations", _ANNOTATIONS_SIZE)
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        _check_key(finalizer, f"metadata.finalizers[{index}]", problems)


def check_labels(labels: Mapping[str, Any], path: str, problems: Problems) -> None:
    """Report keys and values that no label may have."""
    for key, value in labels.items():
        _check_key(key, path, problems)
        if len(value) > LABEL_LENGTH:
            problems.invalid(path, value, f"must be no more than {LABEL_LENGTH} bytes")
        elif not _VALUE.fullmatch(value):
            problems.invalid(path, value, _VALUE_RULE)


def _check_key(key: str, path: str, problems: Problems) -> None:
    prefix, slash, name = key.rpartition("/")
    if slash and (why := subdomain_problem(prefix)):
        problems.invalid(path, key, f"prefix part {why}")
    if len(name) > LABEL_LENGTH:
        problems.invalid(path, key, f"name part must be no more than {LABEL_LENGTH} bytes")
    elif not _QUALIFIED.fullmatch(name):
        problems.invalid(path, key, _QUALIFIED_RULE)


def _check_finalizers(finalizers: Sequence[str], problems: Problems) -> None:
    """Check names: `ValidateFinalizerName` of apimachinery; those of others have a domain."""
    for index, each in enumerate(finalizers):
        if each.count("/") > 1:
            problems.invalid(
                "metadata.finalizers", each, "a qualified name must consist of a name and an optional prefix"
            )
        elif "/" not in each and each not in _FINALIZERS:
            problems.invalid(
                f"metadata.finalizers[{index}]",
                each,
                "name is neither a standard finalizer name nor is it fully qualified",
            )


def _check_owners(owners: Sequence[Mapping[str, Any]], problems: Problems) -> None:
    """Check owners: `ValidateOwnerReferences` of apimachinery."""
    path = "metadata.ownerReferences"
    for each in owners:
        if (each.get("apiVersion"), each.get("kind")) == ("v1", "Event"):
            problems.invalid(path, each, "is disallowed from being an owner")
        for name in ("apiVersion", "kind", "name", "uid"):
            if not each.get(name):
                problems.invalid(path, each.get(name, ""), f"{name} must not be empty")
    if sum(bool(each.get("controller")) for each in owners) > 1:
        problems.invalid(path, owners, "Only one reference can have Controller set to true")
