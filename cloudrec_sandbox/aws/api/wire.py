"""Requests whose values are not of the types in botocore's models, or that lack a required member.

boto3 makes these checks before it sends; other clients, and boto3 with parameter_validation off, do not. So
the services make them again: EC2 by MissingParameter, InvalidParameterValue and UnknownParameter ("Error
codes for the Amazon EC2 API"), those of JSON protocols by SerializationException (smithy's awsJson and
restJson1 protocols), and for a missing member by ValidationException, which EKS calls
InvalidParameterException.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from moto.core.utils import get_service_model

from cloudrec_sandbox.aws.api.errors import AwsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec_sandbox.aws.api.protocol import Target
    from cloudrec_sandbox.core.http import HttpRequest

_OVERHEAD = frozenset({"Action", "Version"})
_BIGGEST = {"integer": 2**31 - 1, "long": 2**63 - 1}
_MISSING = {"eks": "InvalidParameterException"}


def refuse_mistyped(target: Target, request: HttpRequest) -> None:
    """Raise AwsError for the first value that the operation's model does not allow."""
    model = get_service_model(target.service)
    shape: Any = model.operation_model(target.action).input_shape
    if shape is None:
        return
    if str(model.protocol) == "ec2":
        _check_form(shape, parse_qsl(request.body.decode(), keep_blank_values=True))
    elif (
        str(model.protocol) in ("json", "rest-json") and request.body and "payload" not in shape.serialization
    ):
        try:
            body = json.loads(request.body)
        except ValueError as error:
            raise _serialization(f"the body is no JSON: {error}") from error
        for problem in _json_problems(shape, body, "", is_top=True):
            raise problem if problem.code else AwsError(_missing_code(target.service), problem.message)


def _missing_code(service: str) -> str:
    return _MISSING.get(service, "ValidationException")


def _serialization(message: str) -> AwsError:
    return AwsError("SerializationException", message)


def _json_problems(shape: Any, value: object, path: str, *, is_top: bool = False) -> Iterator[AwsError]:  # noqa: ANN401 - botocore's shape
    kind = shape.type_name
    where = path or "the body"
    if kind == "structure":
        if not isinstance(value, dict):
            yield _serialization(f"{where}: a structure is expected")
            return
        yield from _json_members(shape, value, path, is_top=is_top)
    elif kind == "list":
        if not isinstance(value, list):
            yield _serialization(f"{where}: a list is expected")
            return
        for at, each in enumerate(value):
            yield from _json_problems(shape.member, each, f"{path}[{at}]")
    elif kind == "map":
        if not isinstance(value, dict):
            yield _serialization(f"{where}: a map is expected")
            return
        for key, each in value.items():
            yield from _json_problems(shape.value, each, f"{path}.{key}")
    elif not _is_of_kind(kind, value):
        yield _serialization(f"{where}: a value of the type {kind} is expected, not {json.dumps(value)[:80]}")


def _json_members(
    shape: Any,  # noqa: ANN401 - botocore's shape
    value: Mapping[str, object],
    path: str,
    *,
    is_top: bool,
) -> Iterator[AwsError]:
    for name, member in shape.members.items():
        if is_top and "location" in member.serialization:
            continue  # in the address or a header
        wire = str(member.serialization.get("name", name))
        if value.get(wire) is not None:
            yield from _json_problems(member, value[wire], f"{path}.{wire}".lstrip("."))
        elif name in shape.required_members and not member.metadata.get("idempotencyToken"):
            yield AwsError("", f"{path}.{wire}".lstrip(".") + ": the member is required")


def _is_of_kind(kind: str, value: object) -> bool:
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in _BIGGEST:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _BIGGEST[kind] + 1
    if kind in ("float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str) if kind == "string" else True  # timestamps and blobs have several forms


def _check_form(shape: Any, fields: Sequence[tuple[str, str]]) -> None:  # noqa: ANN401 - botocore's shape
    given: set[tuple[str, ...]] = set()
    for key, text in fields:
        parts = key.split(".")
        if parts[0] in _OVERHEAD:
            continue
        for problem in _field_problems(shape, parts, key, text):
            raise problem
        given |= {tuple(parts[:length]) for length in range(1, len(parts) + 1)}
    for missing in _absent(shape, (), given):
        raise AwsError("MissingParameter", f"The request must contain the parameter {missing}")


def _field_problems(shape: Any, parts: Sequence[str], key: str, text: str) -> Iterator[AwsError]:  # noqa: ANN401
    for part in parts:
        if shape.type_name == "structure":
            member = _member(shape, part)
            if member is None:
                yield AwsError("UnknownParameter", f"The parameter {key} is not recognized")
                return
            shape = member
        elif shape.type_name == "list":
            if not part.isdigit():
                return  # some lists have another level on the wire
            shape = shape.member
        else:
            yield AwsError("UnknownParameter", f"The parameter {key} is not recognized")
            return
    yield from _text_problems(shape, key, text)


def _text_problems(shape: Any, key: str, text: str) -> Iterator[AwsError]:  # noqa: ANN401 - botocore's shape
    if shape.type_name in ("structure", "list") and text:
        yield AwsError("UnknownParameter", f"The parameter {key} is not recognized")
    elif shape.type_name == "boolean" and text.lower() not in ("true", "false"):
        yield AwsError("InvalidParameterValue", f"Invalid value '{text}' for the boolean {key}")
    elif shape.type_name in _BIGGEST:
        try:
            fits = abs(int(text)) <= _BIGGEST[shape.type_name] + 1
        except ValueError:
            fits = False
        if not fits:
            yield AwsError("InvalidParameterValue", f"Invalid value '{text}' for the number {key}")


def _member(shape: Any, wire: str) -> Any:  # noqa: ANN401 - botocore's shapes
    for name, member in shape.members.items():
        if wire in _wire_names(name, member):
            return member
    return None


def _wire_names(name: str, member: Any) -> set[str]:  # noqa: ANN401 - botocore's shape
    own = str(member.serialization.get("queryName") or member.serialization.get("name") or name)
    return {own, own[:1].upper() + own[1:]}


def _absent(shape: Any, path: tuple[str, ...], given: set[tuple[str, ...]]) -> Iterator[str]:  # noqa: ANN401
    if shape.type_name == "list":
        for at in sorted(each[-1] for each in given if len(each) == len(path) + 1 and each[:-1] == path):
            yield from _absent(shape.member, (*path, at), given)
    if shape.type_name != "structure":
        return
    for name, member in shape.members.items():
        found = [(*path, wire) for wire in _wire_names(name, member) if (*path, wire) in given]
        if found:
            yield from _absent(member, found[0], given)
        elif name in shape.required_members and not member.metadata.get("idempotencyToken"):
            yield ".".join((*path, name))
