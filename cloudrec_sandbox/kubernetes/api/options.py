"""The options in a call's query and body: `pkg/apis/meta/v1/validation` of apimachinery, and the handlers."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.api.call import Call

_VALIDATION = ("", "Ignore", "Strict", "Warn")
_MATCHES = ("Exact", "NotOlderThan")
_LONGEST_MANAGER = 128
_BODIES = ("", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_GROUP = "meta.k8s.io"
_ACCEPTED = (
    "*",
    "application/*",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
)


def not_allowed() -> errors.ApiError:
    """Return the error for a method that a resource does not have."""
    text = "the server does not allow this method on the requested resource"
    return errors.ApiError(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", text)


def check(call: Call) -> None:
    """Refuse what no handler takes: a wrong place for the verb, and malformed options."""
    target, verb = call.target, call.target.verb
    is_whole = not target.name and not target.subresource
    if verb in ("update", "patch") and is_whole:
        raise not_allowed()
    if (
        verb == "create"
        and not target.subresource
        and (
            target.name
            or (call.resource.namespaced and target.namespace is None and not call.resource.is_review)
        )
    ):
        raise not_allowed()
    _check_accept(call)
    if verb in ("create", "update") and call.content_type not in _BODIES:
        text = (
            f"the body of the request was in an unknown format - accepted media types include: {_BODIES[1:]}"
        )
        raise errors.ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", text)
    if verb in ("create", "update", "patch", "delete", "deletecollection"):
        _check_write(call, f"{'Delete' if 'delete' in verb else verb.title()}Options")
    elif verb in ("list", "watch"):
        _check_list(call)
    elif verb == "get" and not target.subresource:
        _check_version(call, call.query.get("resourceVersion", ""), is_list=False)


def _invalid(kind: str, field: str, message: str) -> errors.ApiError:
    return errors.invalid(kind, _GROUP, "", [errors.cause(field, message)])


def _check_accept(call: Call) -> None:
    accepted = call.request.lower.get("accept", "")
    kinds = [part.partition(";")[0].strip() for part in accepted.split(",") if part.strip()]
    if kinds and not call.target.subresource and not any(kind in ("*/*", *_ACCEPTED) for kind in kinds):
        text = f"only the following media types are accepted: {', '.join(_ACCEPTED[2:])}"
        raise errors.ApiError(HTTPStatus.NOT_ACCEPTABLE, "NotAcceptable", text)


def _check_write(call: Call, kind: str) -> None:
    query = call.query
    if query.get("fieldValidation", "") not in _VALIDATION:
        value = query["fieldValidation"]
        raise _invalid(
            kind,
            "fieldValidation",
            f'Unsupported value: "{value}": supported values: "Ignore", "Strict", "Warn"',
        )
    if len(query.get("fieldManager", "")) > _LONGEST_MANAGER:
        raise _invalid(kind, "fieldManager", f"Too long: may not be more than {_LONGEST_MANAGER} bytes")
    if query.get("dryRun", "") not in ("", "All"):
        raise _dry_run(kind, query["dryRun"])


def _dry_run(kind: str, value: str) -> errors.ApiError:
    return _invalid(kind, "dryRun", f'Unsupported value: "{value}": supported values: "All"')


def check_deletion(wish: dict[str, Any]) -> None:
    """Refuse the options of a deletion that contradict one another."""
    if wish.get("propagationPolicy") is not None and wish.get("orphanDependents") is not None:
        raise _invalid(
            "DeleteOptions",
            "propagationPolicy",
            "Invalid value: orphanDependents and deletionPropagation cannot be both set",
        )
    for value in wish.get("dryRun") or ():
        if value != "All":
            raise _dry_run("DeleteOptions", value)


def _check_list(call: Call) -> None:
    query, kind = call.query, "ListOptions"
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    is_watch, sends_all = call.target.verb == "watch", "sendInitialEvents" in query
    if is_watch and match and not sends_all:
        raise _invalid(
            kind,
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )
    if is_watch and sends_all and match != "NotOlderThan":
        raise _invalid(
            kind,
            "resourceVersionMatch",
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )
    if match and not is_watch:
        if match not in _MATCHES:
            raise _invalid(
                kind,
                "resourceVersionMatch",
                f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""',
            )
        if not version:
            raise _invalid(
                kind,
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            )
        if match == "Exact" and version == "0":
            raise _invalid(
                kind,
                "resourceVersionMatch",
                'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
            )
    _check_version(call, version, is_list=not is_watch)


def _check_version(call: Call, version: str, *, is_list: bool) -> None:
    if not version:
        return
    if not version.isdigit():
        text = f'invalid resource version "{version}"'
        # Seen on 1.36.2: a list is a bad request, a read or a watch an error without a reason.
        raise (
            errors.bad_request(text)
            if is_list
            else errors.ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "", text)
        )
    if call.target.verb != "watch" and int(version) > call.store.table.version:
        text = f"Too large resource version: {version}, current: {call.store.table.version}"
        details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
        raise errors.ApiError(
            HTTPStatus.GATEWAY_TIMEOUT, "Timeout", text, details={**details, "retryAfterSeconds": 1}
        )
