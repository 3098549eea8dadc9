"""Limits of botocore's models that boto3 does not check: enums, patterns, maximum lengths."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from moto.core.utils import get_service_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.call import Call


def violation(call: Call) -> str | None:
    """Return an error for the first value that the call's model does not allow; None if all are allowed."""
    shape: Any = get_service_model(call.service).operation_model(call.action).input_shape
    return next(_violations(shape, call.params, ""), None) if shape else None


def _violations(shape: Any, value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - botocore's shapes, JSON
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            if value.get(name) is not None:
                yield from _violations(member, value[name], f"{path}.{name}" if path else name)
    elif shape.type_name == "list":
        for item in value:
            yield from _violations(shape.member, item, path)
    elif shape.type_name == "map":
        for key, item in value.items():
            yield from _violations(shape.key, key, path)
            yield from _violations(shape.value, item, path)
    elif shape.type_name == "string":
        yield from _string(shape, value, path)
    elif shape.type_name in ("integer", "long"):
        yield from _number(shape, value, path)


def _number(shape: Any, value: int, path: str) -> Iterator[str]:  # noqa: ANN401 - botocore's shape
    lowest, highest = shape.metadata.get("min"), shape.metadata.get("max")
    if (lowest is not None and value < lowest) or (highest is not None and value > highest):
        yield f"{path} {value} is not within {lowest} and {highest}"


def _string(shape: Any, value: str, path: str) -> Iterator[str]:  # noqa: ANN401 - botocore's shape
    enum, longest, pattern = shape.enum, shape.metadata.get("max"), shape.metadata.get("pattern")
    if enum and value not in enum:
        yield f"{path} {value!r} is none of {', '.join(enum)}"
    if longest is not None and len(value) > longest:
        yield f"{path} has {len(value)} characters, at most {longest} are allowed"
    if pattern and not re.fullmatch(
        pattern.replace("\\p{L}", "\\w").replace("\\p{Z}", "\\s").replace("\\p{N}", "\\d"), value
    ):
        yield f"{path} {value!r} does not match {pattern}"
