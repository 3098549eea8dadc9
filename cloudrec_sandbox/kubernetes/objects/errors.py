"""Refusals in an API server's format: a Status with a reason, and causes for fields."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.http import Reply, json_reply

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
        """Return the Status."""
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
        """Return the reply; with Retry-After if the Status names when to retry."""
        after = self.details.get("retryAfterSeconds")
        headers = [("Retry-After", str(after))] if after is not None else []
        return json_reply(self.document(), self.status, headers)


def qualified(plural: str, group: str) -> str:
    """Return a resource's name with its group, as messages have it."""
    return f"{plural}.{group}" if group else plural


def _about(plural: str, group: str, name: str) -> dict[str, Any]:
    return {"name": name, **({"group": group} if group else {}), "kind": plural}


def not_found(plural: str, group: str, name: str) -> ApiError:
    """Return the error for an object that does not exist."""
    return ApiError(
        HTTPStatus.NOT_FOUND,
        "NotFound",
        f'{qualified(plural, group)} "{name}" not found',
        details=_about(plural, group, name),
    )


def no_such_path() -> ApiError:
    """Return the error for a resource that is not served, as a server answers without its operator."""
    return ApiError(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")


class PageNotFoundError(ApiError):
    """No handler at all: the reply is text, not a Status."""

    def __init__(self) -> None:
        super().__init__(HTTPStatus.NOT_FOUND, "", "404 page not found")

    def reply(self) -> Reply:
        """Return the reply."""
        return Reply(
            status=self.status, headers=(("Content-Type", "text/plain"),), body=b"404 page not found\n"
        )


def already_exists(plural: str, group: str, name: str, *, terminating: bool = False) -> ApiError:
    """Return the error for a name that is taken, perhaps by an object that is being deleted."""
    what = qualified(plural, group)
    message = f'object is being deleted: {what} "{name}" already exists' if terminating else ""
    return ApiError(
        HTTPStatus.CONFLICT,
        "AlreadyExists",
        message or f'{what} "{name}" already exists',
        details=_about(plural, group, name),
    )


def conflict(plural: str, group: str, name: str, why: str = "") -> ApiError:
    """Return the error for a change from an old version."""
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
    """Return the cause for one wrong field."""
    return {"reason": reason, "message": message, "field": field}


def invalid(kind: str, group: str, name: str, causes: Sequence[Mapping[str, str]]) -> ApiError:
    """Return the error for wrong fields."""
    blamed = [f"{each['field']}: {each['message']}" for each in causes]
    causes_text = blamed[0] if len(blamed) == 1 else f"[{', '.join(blamed)}]"
    full = qualified(kind, group)
    details = {**_about(kind, group, name), "causes": [dict(each) for each in causes]}
    return ApiError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Invalid",
        f'{full} "{name}" is invalid: {causes_text}',
        details=details,
    )


def bad_request(message: str) -> ApiError:
    """Return the error for a malformed request."""
    return ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def forbidden(plural: str, group: str, name: str, why: str, **details: Any) -> ApiError:  # noqa: ANN401 - JSON
    """Return the error for what the user may not do, or what is not allowed now."""
    named = f' "{name}"' if name else ""
    return ApiError(
        HTTPStatus.FORBIDDEN,
        "Forbidden",
        f"{qualified(plural, group)}{named} is forbidden: {why}",
        details={**_about(plural, group, name), **details},
    )


def expired(message: str) -> ApiError:
    """Return the error for a version, or a rest of a list, that is too old."""
    return ApiError(HTTPStatus.GONE, "Expired", message)


def too_many(message: str, seconds: int, **details: Any) -> ApiError:  # noqa: ANN401 - JSON
    """Return the error for a request that can be repeated after `seconds`."""
    return ApiError(
        HTTPStatus.TOO_MANY_REQUESTS,
        "TooManyRequests",
        message,
        details={**details, "retryAfterSeconds": seconds},
    )


def go_like(value: Any) -> str:  # noqa: ANN401 - JSON
    """Return a value as messages show it, cut if it is long."""
    text = json.dumps(value, separators=(",", ":"))
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
