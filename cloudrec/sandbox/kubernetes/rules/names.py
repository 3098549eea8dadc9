"""Names, labels and annotations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.sandbox.kubernetes.resources import Resource
    from cloudrec.sandbox.kubernetes.rules.problems import Problems

LABEL_LENGTH, SUBDOMAIN_LENGTH = 63, 253
_ANNOTATIONS_SIZE = 262_144
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_TELL_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_TELL_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_TELL_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_TELL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_TELL_QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_PATH_NAMES = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
_LONGEST_CRON = 52


def label_problem(name: str) -> str:
    """Why a name is no DNS label; empty where it is one."""
    if len(name) > LABEL_LENGTH:
        return f"must be no more than {LABEL_LENGTH} bytes"
    return "" if _LABEL.fullmatch(name) else _TELL_LABEL


def subdomain_problem(name: str) -> str:
    """Why a name is no DNS subdomain; empty where it is one."""
    if len(name) > SUBDOMAIN_LENGTH:
        return f"must be no more than {SUBDOMAIN_LENGTH} bytes"
    return "" if _SUBDOMAIN.fullmatch(name) else _TELL_SUBDOMAIN


def _name_problem(resource: Resource, name: str) -> str:
    if resource.key in _PATH_NAMES:
        wrong = name in (".", "..") or "/" in name or "%" in name
        return "may not be '.' or '..', nor contain '/' or '%'" if wrong else ""
    if resource.key == "services":
        if len(name) > LABEL_LENGTH:
            return f"must be no more than {LABEL_LENGTH} bytes"
        return "" if _LABEL_1035.fullmatch(name) else _TELL_1035
    if resource.key == "namespaces":
        return label_problem(name)
    if resource.key == "cronjobs" and len(name) > _LONGEST_CRON:
        return f"must be no more than {_LONGEST_CRON} characters"
    return subdomain_problem(name)


def check_metadata(resource: Resource, metadata: Mapping[str, Any], problems: Problems) -> None:
    """Blame name, labels and annotations that may not be."""
    name = metadata.get("name", "")
    if not name:
        problems.required("metadata.name", "name or generateName is required")
    elif why := _name_problem(resource, name):
        problems.invalid("metadata.name", name, why)
    check_labels(metadata.get("labels") or {}, "metadata.labels", problems)
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        _check_key(key.lower(), "metadata.annotations", problems)
    size = sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS_SIZE:
        problems.too_long("metadata.annotations", _ANNOTATIONS_SIZE)
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        _check_key(finalizer, f"metadata.finalizers[{index}]", problems)


def check_labels(labels: Mapping[str, Any], path: str, problems: Problems) -> None:
    """Blame keys and values that no label may have."""
    for key, value in labels.items():
        _check_key(key, path, problems)
        if len(value) > LABEL_LENGTH:
            problems.invalid(path, value, f"must be no more than {LABEL_LENGTH} bytes")
        elif not _VALUE.fullmatch(value):
            problems.invalid(path, value, _TELL_VALUE)


def _check_key(key: str, path: str, problems: Problems) -> None:
    prefix, slash, name = key.rpartition("/")
    if slash and (why := subdomain_problem(prefix)):
        problems.invalid(path, key, f"prefix part {why}")
    if len(name) > LABEL_LENGTH:
        problems.invalid(path, key, f"name part must be no more than {LABEL_LENGTH} bytes")
    elif not _QUALIFIED.fullmatch(name):
        problems.invalid(path, key, _TELL_QUALIFIED)
