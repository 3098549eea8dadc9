"""Refusals as an API server words them: a Status with a reason, and causes where fields are to blame."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.http import Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_SHOWN = 400  # characters of a value in a message


class ApiError(Exception):
    """The API server refuses: HTTP status, reason, message, and the details of its Status."""

    def __init__(
        self, status: int, reason: str, message: str, *, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status = int(status)
        self.reason = reason
        self.message = message
        self.details = dict(details or {})

    def document(self) -> dict[str, Any]:
        """The Status."""
        details = {"details": self.details} if self.details else {}
        reason = {"reason": self.reason} if self.reason else {}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **reason,
            **details,
            "code": self.status,
        }

    def reply(self) -> Reply:
        """The answer; with Retry-After where the Status tells when to come again."""
        after = self.details.get("retryAfterSeconds")
        headers = [("Retry-After", str(after))] if after is not None else []
        return json_reply(self.document(), self.status, headers)


def qualified(plural: str, group: str) -> str:
    """A resource's name with its group, as messages have it."""
    return f"{plural}.{group}" if group else plural


def _about(plural: str, group: str, name: str) -> dict[str, Any]:
    return {"name": name, **({"group": group} if group else {}), "kind": plural}


def not_found(plural: str, group: str, name: str) -> ApiError:
    """There is no such object."""
    return ApiError(
        HTTPStatus.NOT_FOUND,
        "NotFound",
        f'{qualified(plural, group)} "{name}" not found',
        details=_about(plural, group, name),
    )


def no_such_path() -> ApiError:
    """No such resource is served: what a server says whose operator is not installed."""
    return ApiError(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")


def already_exists(plural: str, group: str, name: str, *, terminating: bool = False) -> ApiError:
    """The name is taken, perhaps by something on its way out."""
    what = qualified(plural, group)
    message = f'object is being deleted: {what} "{name}" already exists' if terminating else ""
    return ApiError(
        HTTPStatus.CONFLICT,
        "AlreadyExists",
        message or f'{what} "{name}" already exists',
        details=_about(plural, group, name),
    )


def conflict(plural: str, group: str, name: str, why: str = "") -> ApiError:
    """What the client knew is not so any more."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    return ApiError(
        HTTPStatus.CONFLICT,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}',
        details=_about(plural, group, name),
    )


def cause(field: str, message: str, reason: str = "FieldValueInvalid") -> dict[str, str]:
    """One field to blame."""
    return {"reason": reason, "message": message, "field": field}


def invalid(kind: str, group: str, name: str, causes: Sequence[Mapping[str, str]]) -> ApiError:
    """Fields are to blame."""
    blamed = [f"{each['field']}: {each['message']}" for each in causes]
    told = blamed[0] if len(blamed) == 1 else f"[{', '.join(blamed)}]"
    full = qualified(kind, group)
    details = {**_about(kind, group, name), "causes": [dict(each) for each in causes]}
    return ApiError(
        HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", f'{full} "{name}" is invalid: {told}', details=details
    )


def bad_request(message: str) -> ApiError:
    """The request makes no sense."""
    return ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def forbidden(plural: str, group: str, name: str, why: str, **details: Any) -> ApiError:  # noqa: ANN401 - JSON
    """Who asks may not, or nobody may now."""
    named = f' "{name}"' if name else ""
    return ApiError(
        HTTPStatus.FORBIDDEN,
        "Forbidden",
        f"{qualified(plural, group)}{named} is forbidden: {why}",
        details={**_about(plural, group, name), **details},
    )


def expired(message: str) -> ApiError:
    """The version, or the rest of a list, is too old."""
    return ApiError(HTTPStatus.GONE, "Expired", message)


def too_many(message: str, seconds: int, **details: Any) -> ApiError:  # noqa: ANN401 - JSON
    """Not now: come again in `seconds`."""
    return ApiError(
        HTTPStatus.TOO_MANY_REQUESTS,
        "TooManyRequests",
        message,
        details={**details, "retryAfterSeconds": seconds},
    )


def go_like(value: Any) -> str:  # noqa: ANN401 - JSON
    """A value as messages show it, cut where it is long."""
    text = json.dumps(value, separators=(",", ":"))
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
