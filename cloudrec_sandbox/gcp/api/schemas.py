"""Bodies of REST requests, checked against the SDK's own messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from cloudrec_sandbox.gcp.api.errors import GcpError

if TYPE_CHECKING:
    from google.protobuf.message import Message


def read(body: bytes, kind: Any) -> Any:  # noqa: ANN401 - JSON, and a class of the SDK's
    """Return the body as `kind` defines it: camelCase, enums by name, 64-bit numbers as strings; or GcpError.

    `kind` is a message's class, `dict` for any JSON object, or None if there must be no body.
    """
    if kind is bytes:
        return body
    if kind is None:
        if body.strip() not in (b"", b"{}"):
            raise GcpError("INVALID_ARGUMENT", "Invalid JSON payload received. This method takes no body.")
        return {}
    document = _object(body)
    return document if kind is dict else checked(document, kind)


def checked(document: dict[str, Any], kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a class of the SDK's
    """Return the document as a message's class shows it; GcpError for what the class does not have."""
    message = kind.pb(kind()) if hasattr(kind, "pb") else kind()
    try:
        ParseDict(document, message)
    except ParseError as error:
        raise GcpError("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from error
    _check_enums(message, "resource")
    return shown(message)


def shown(message: Any) -> dict[str, Any]:  # noqa: ANN401 - of protobuf or proto-plus
    """Return a message as JSON for REST."""
    raw = type(message).pb(message) if hasattr(type(message), "pb") else message
    document: dict[str, Any] = MessageToDict(raw)
    return document


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body or b"{}")
    except ValueError as error:
        raise GcpError("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from error
    if not isinstance(document, dict):
        raise GcpError("INVALID_ARGUMENT", "Invalid JSON payload received. Root element must be a message.")
    return document


def _check_enums(message: Message, where: str) -> None:
    """Check enums, which are plain strings in Compute's messages, with an enum type of the field's name."""
    enums = message.DESCRIPTOR.enum_types_by_name
    for field, value in message.ListFields():
        path = f"{where}.{field.json_name}"
        if field.message_type is not None:
            for each in _messages(field, value):
                _check_enums(each, path)
        elif field.type == field.TYPE_STRING:
            enum = enums.get("".join(part.capitalize() for part in field.name.split("_")))
            known = {entry.name for entry in enum.values} if enum else set()
            for each in [value] if isinstance(value, str) else value:
                if enum and each not in known:
                    names = ", ".join(sorted(known - {f"UNDEFINED_{field.name.upper()}"}))
                    raise GcpError(
                        "INVALID_ARGUMENT",
                        f"Invalid value for field '{path}': '{each}'. Must be one of: {names}",
                    )


def _messages(field: Any, value: Any) -> list[Message]:  # noqa: ANN401 - protobuf's descriptors
    if field.message_type.GetOptions().map_entry:
        held = field.message_type.fields_by_name["value"].message_type
        return list(value.values()) if held is not None else []
    return [value] if hasattr(value, "DESCRIPTOR") else list(value)
