"""Reading an object as its kind: wrong values are refused, unknown fields dropped or refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.objects.resources import Resource
    from cloudrec_sandbox.kubernetes.objects.schema import Node

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}
_QUANTITY = re.compile(r"[+-]?(\d+|\d+\.\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")


@dataclass(kw_only=True)
class _Findings:
    unknown: list[str] = field(default_factory=list)
    mistyped: list[tuple[str, str, str]] = field(default_factory=list)
    causes: list[dict[str, str]] = field(default_factory=list)


def decoded(resource: Resource, node: Node, obj: dict[str, Any], validation: str) -> tuple[Any, list[str]]:
    """Return the object without unknown fields, and warnings.

    Args:
        resource: its kind.
        node: the schema of that kind.
        obj: the object, without nulls.
        validation: Strict refuses unknown fields, Warn reports them, Ignore drops them silently.
    """
    findings = _Findings()
    read = _read(node, obj, "", findings)
    # In the real server's order: wrong types end the decoding, before unknown fields and missing ones.
    if findings.mistyped:
        raise _mistyped(resource, obj, findings)
    if findings.unknown and validation == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in findings.unknown)
        raise errors.bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {listed}"
        )
    if findings.causes:
        name = (obj.get("metadata") or {}).get("name", "")
        raise errors.invalid(resource.kind, resource.group, name, findings.causes)
    warns = validation != "Ignore"
    return read, [f'unknown field "{path}"' for path in findings.unknown] if warns else []


def untyped(node: Node, obj: dict[str, Any]) -> str:
    """Return why server-side apply cannot take an object as its kind; empty if it can."""
    findings = _Findings()
    _read(node, obj, "", findings)
    if findings.mistyped:
        path, found, right = findings.mistyped[0]
        return f".{path}: expected {right}, got {found}"
    return f".{findings.unknown[0]}: field not declared in schema" if findings.unknown else ""


def _mistyped(resource: Resource, obj: dict[str, Any], findings: _Findings) -> errors.ApiError:
    if resource.custom:
        name = (obj.get("metadata") or {}).get("name", "")
        causes = [
            errors.cause(path, f'Invalid value: "{found}": {path} in body must be of type {right}: "{found}"')
            for path, found, right in findings.mistyped
        ]
        return errors.invalid(resource.kind, resource.group, name, causes)
    path, found, right = findings.mistyped[0]
    return errors.ApiError(
        HTTPStatus.BAD_REQUEST,
        "BadRequest",
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: json: '
        f"cannot unmarshal {found} into Go struct field {resource.kind}.{path} of type {right}",
    )


# The model has these as required, and an API server takes an object without them (recorded-pods.json).
_NOT_CHECKED = (".podFailurePolicy.rules",)


def _read(node: Node, value: Any, path: str, findings: _Findings) -> Any:  # noqa: ANN401 - JSON
    if not _fits(node, value):
        right = "quantity" if node.is_quantity else "/".join(sorted(node.types))
        findings.mistyped.append((path, _NAMES.get(type(value), "null"), right))
        return value
    _check_value(node, value, path, findings)
    if isinstance(value, dict):
        return _read_object(node, value, path, findings)
    if isinstance(value, list):
        return [_read(node.items, each, f"{path}[{index}]", findings) for index, each in enumerate(value)]
    return value


def _fits(node: Node, value: Any) -> bool:  # noqa: ANN401 - JSON
    types = node.types
    if not types:
        return True
    # bool is a subclass of int in Python: without this, true would fit an integer.
    if isinstance(value, bool):
        return "boolean" in types
    # In JSON 1.0 and 1 are the same number.
    if isinstance(value, float) and value.is_integer() and "integer" in types:
        return True
    return any(isinstance(value, _TYPES[name]) for name in types if name != "boolean")


def _read_object(node: Node, value: dict[str, Any], path: str, findings: _Findings) -> dict[str, Any]:
    read = {}
    for name, each in value.items():
        below = f"{path}.{name}" if path else name
        if name in node.fields or node.values is not None:
            read[name] = _read(node.child(name), each, below, findings)
        elif node.is_open:
            read[name] = each
        else:
            findings.unknown.append(below)
    # The defaults of the definition's schema: custom kinds have no other defaults.
    for name, child in node.fields.items():
        if name not in read and "default" in child.raw:
            read[name] = child.raw["default"]
    for name in node.raw.get("required", ()):
        below = f"{path}.{name}" if path else name
        if name not in read and not below.endswith(_NOT_CHECKED):
            findings.causes.append(errors.cause(below, "Required value", "FieldValueRequired"))
    return read


def _check_value(node: Node, value: Any, path: str, findings: _Findings) -> None:  # noqa: ANN401 - JSON
    raw = node.raw
    if node.is_quantity and not is_quantity(value):
        message = (
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
        findings.mistyped.append((path, f"{value!r}", f"quantity: {message}"))
    if "enum" in raw and value not in raw["enum"] and path not in ("apiVersion", "kind"):
        allowed = ", ".join(f'"{each}"' for each in raw["enum"] if each is not None)
        findings.causes.append(
            errors.cause(
                path,
                f'Unsupported value: "{value}": supported values: {allowed}',
                "FieldValueNotSupported",
            )
        )
    if message := _limit(raw, value):
        findings.causes.append(errors.cause(path, f'Invalid value: "{value}": {path} in body {message}'))


def _limit(raw: dict[str, Any], value: Any) -> str:  # noqa: ANN401 - JSON
    """Return which limit of the schema a value breaks; empty for none."""
    if isinstance(value, str):
        if "pattern" in raw and not re.search(raw["pattern"], value):
            return f"should match '{raw['pattern']}'"
        return _size(raw, len(value), ("minLength", "maxLength"), "chars long")
    if isinstance(value, list):
        return _size(raw, len(value), ("minItems", "maxItems"), "items")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _size(raw, value, ("minimum", "maximum"), "")
    return ""


def _size(raw: dict[str, Any], size: float, names: tuple[str, str], unit: str) -> str:
    least, most = raw.get(names[0]), raw.get(names[1])
    if least is not None and size < least:
        return f"should be at least {least} {unit}".strip()
    if most is not None and size > most:
        return f"should be at most {most} {unit}".strip()
    return ""


def is_quantity(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether it is a quantity of a resource."""
    return isinstance(value, int | float) or (
        isinstance(value, str) and _QUANTITY.fullmatch(value) is not None
    )
