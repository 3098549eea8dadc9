"""Label selectors and field selectors of lists and watches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec_sandbox.kubernetes.objects.resources import Resource

    Test = Callable[[Mapping[str, Any]], bool]

_SET = re.compile(r"(?P<key>\S+)\s+(?P<how>in|notin)\s*\((?P<values>[^)]*)\)")
_PART = re.compile(r"(?:[^,(]|\([^)]*\))+")
_KEY = re.compile(r"(?:[a-z0-9A-Z.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_FIELDS = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "jobs": ("status.successful",),
    "secrets": ("type",),
    "replicasets": ("status.replicas",),
    "resourceslices": ("spec.nodeName", "spec.driver"),
}
_ZERO = {"spec.unschedulable": "false", "spec.hostNetwork": "false", "status.successful": "0"}


def test_of(resource: Resource, labels: str, fields: str) -> Test:
    """Return a test for the selectors; refused with 400 if one is malformed."""
    tests = [*_label_tests(labels), *_field_tests(resource, fields)]
    return lambda obj: all(test(obj) for test in tests)


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether labels match a selector of an object: matchLabels and matchExpressions."""
    wanted = (selector.get("matchLabels") or {}).items()
    return wanted <= labels.items() and all(
        _fits(each["key"], each["operator"], each.get("values") or [], labels)
        for each in selector.get("matchExpressions") or ()
    )


def _fits(key: str, operator: str, values: list[str], labels: Mapping[str, str]) -> bool:
    if operator in ("Gt", "Lt"):
        text = labels.get(key, "")
        if not text.isdigit():
            return False
        return int(text) > int(values[0]) if operator == "Gt" else int(text) < int(values[0])
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    return (key in labels) is (operator == "Exists")


def _label_tests(selector: str) -> list[Test]:
    if selector.rstrip().endswith(","):
        raise errors.bad_request("unable to parse requirement: found '', expected: identifier after ','")
    return [_label_test(part.strip()) for part in _PART.findall(selector) if part.strip()]


def _label_test(part: str) -> Test:
    key, operator, values = _parsed(part)
    if not _KEY.fullmatch(key):
        raise errors.bad_request(f"unable to parse requirement: {part!r} is no requirement on a label")
    is_number = operator not in ("Gt", "Lt") or values[0].isdigit()
    if not is_number or any(not _VALUE.fullmatch(each) for each in values):
        raise errors.bad_request(f"unable to parse requirement: values of {part!r} are not valid")
    return lambda obj: _fits(key, operator, values, obj["metadata"].get("labels") or {})


def _parsed(part: str) -> tuple[str, str, list[str]]:
    if found := _SET.fullmatch(part):
        values = [value.strip() for value in found["values"].split(",")]
        return found["key"], "In" if found["how"] == "in" else "NotIn", values
    for sign, operator in (("!=", "NotIn"), ("==", "In"), ("=", "In"), (">", "Gt"), ("<", "Lt")):
        key, found_sign, value = part.partition(sign)
        if found_sign:
            return key.strip(), operator, [value.strip()]
    if part.startswith("!"):
        return part[1:].strip(), "DoesNotExist", []
    return part, "Exists", []


def _field_tests(resource: Resource, selector: str) -> list[Test]:
    return [_field_test(resource, part.strip()) for part in selector.split(",") if part.strip()]


def _field_test(resource: Resource, part: str) -> Test:
    for sign in ("!=", "==", "="):
        field, found, value = part.partition(sign)
        if found:
            break
    else:
        raise errors.bad_request(f"invalid field selector: {part!r}: there is no operator in it")
    known = ("metadata.name", "metadata.namespace", *_FIELDS.get(resource.key, ()))
    if field not in known:
        raise errors.bad_request(
            f'"{field}" is not a known field selector: field label not supported: {field}'
        )
    steps = field.split(".")
    return lambda obj: (_value(obj, steps, _ZERO.get(field, "")) == value) is (sign != "!=")


def _value(obj: Mapping[str, Any], steps: list[str], zero: str) -> str:
    found: Any = obj
    for step in steps:
        found = found.get(step) if isinstance(found, dict) else None
    if isinstance(found, bool):
        return str(found).lower()
    return zero if found is None else str(found)
