"""The errors of a Kubernetes API server, with readable messages and remedies.

KubeError                    1   the API server refused or failed a call
├── ApiUnreachableError      3   the server does not answer, or its certificate is not trusted
├── DeniedError              3   401 and 403: the credential is refused, or lacks a permission
├── AbsentError              1   404: no such object, or no such kind of object
├── ConflictError            1   409: the object exists or has changed, or another manager owns a field
├── ExpiredError             1   410: the server no longer has this resource version
├── InvalidError             2   400 and 422: the object is refused; the message has the server's reasons
└── OverloadedError          1   429 and 5xx: the server cannot answer now
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError, PreflightError, UsageError
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping

_BAD_REQUEST, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 400, 401, 403, 404
_CONFLICT, _GONE, _INVALID, _TOO_MANY, _SERVER = 409, 410, 422, 429, 500
_DENIED = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r' in API group "(?P<group>[^"]*)"(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_OWNER = re.compile(r'conflicts? with "([^"]+)"')
_TEXT_LIMIT = 500


class KubeError(CloudrecError):
    """The API server refused or failed a call.

    Attributes:
        status: the HTTP status; 0 without a response.
        reason: the reason in the response, such as AlreadyExists; empty if it has none.
    """

    def __init__(self, message: str, *, remedy: str | None = None, status: int = 0, reason: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.status = status
        self.reason = reason


class ApiUnreachableError(KubeError, PreflightError):
    """The API server does not answer, or its certificate is not trusted.

    Attributes:
        was_sent: whether the request may have reached the server anyway.
        silence: the error of the connection to a server that does not answer; empty for another cause.
    """

    def __init__(
        self, message: str, *, remedy: str | None = None, was_sent: bool = False, silence: str = ""
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.was_sent = was_sent
        self.silence = silence


class DeniedError(KubeError, PreflightError):
    """The server refuses the credential, or the identity lacks a permission."""


class AbsentError(KubeError):
    """There is no such object, or no such kind of object."""


class ConflictError(KubeError):
    """The object exists already, has changed meanwhile, or another manager owns a field.

    Attributes:
        owners: the manager of each field in conflict, by the field; empty for the other reasons.
    """

    owners: Mapping[str, str] = {}

    @property
    def exists(self) -> bool:
        """Whether the object exists already."""
        return self.reason == "AlreadyExists"


class ExpiredError(KubeError):
    """A list or a watch requested a resource version that the server no longer has."""


class InvalidError(KubeError, UsageError):
    """The server refuses the object; a retry would be refused as well."""


class OverloadedError(KubeError):
    """The server is overloaded or has an internal error; a later call may succeed.

    Attributes:
        wait_s: seconds to wait before the next call; None if the server names none.
        had_no_effect: whether the call certainly had no effect.
    """

    wait_s: float | None = None
    had_no_effect: bool = False


@dataclass(frozen=True, kw_only=True)
class ErrorResponse:
    """A server's response with an error.

    Attributes:
        status: the HTTP status.
        body: the response's body, usually a Status object.
        retry_after: the header Retry-After; None without one.
        what: the call, as text for messages: "list pods in namespace runs".
        server: the server's URL.
    """

    status: int
    body: bytes
    retry_after: str | None
    what: str
    server: str


def error_of(answer: ErrorResponse) -> KubeError:
    """Return the error for a response, with the remedy if there is one."""
    document = _document(answer.body)
    message = str(document.get("message") or answer.body.decode(errors="replace").strip() or answer.status)
    message = message[:_TEXT_LIMIT]
    reason = str(document.get("reason") or "")
    found = _known(answer, document, message, reason)
    found.status, found.reason = answer.status, reason
    return found


def _known(answer: ErrorResponse, document: Mapping[str, Any], message: str, reason: str) -> KubeError:
    what, status = answer.what, answer.status
    if status == _TOO_MANY or status >= _SERVER:
        return _overloaded(answer, document, message)
    if status == _FORBIDDEN:
        return _forbidden(what, message, reason)
    if status == _CONFLICT:
        return _conflict(what, document, message)
    simple: dict[int, KubeError] = {
        _UNAUTHORIZED: DeniedError(
            f"the cluster at {answer.server} does not accept our credentials (401): cannot {what}",
            remedy="log in to the cloud again, or name the right cluster: `cloudrec doctor` shows both",
        ),
        _NOT_FOUND: AbsentError(f"cannot {what}: {message}"),
        _GONE: ExpiredError(f"cannot {what}: {message}", remedy="list again"),
        _BAD_REQUEST: InvalidError(f"the cluster refuses to {what}: {_causes(document) or message}"),
        _INVALID: InvalidError(f"the cluster refuses to {what}: {_causes(document) or message}"),
    }
    return simple.get(status) or KubeError(f"cannot {what}: the server answers {status}: {message}")


def _forbidden(what: str, message: str, reason: str) -> KubeError:
    if "exceeded quota" in message:
        return DeniedError(
            f"cannot {what}: {message}",
            remedy="request less, or have the administrator of the namespace raise its ResourceQuota",
        )
    # 403 as well, but it ends when the namespace is deleted, so a retry helps.
    if "being terminated" in message or reason == "NamespaceTerminating":
        return OverloadedError(
            f"cannot {what}: the namespace is being deleted", remedy="wait until it is gone, then try again"
        )
    if message.rstrip().endswith("is forbidden:"):
        return DeniedError(
            f"cannot {what}: the API server refuses it and names no reason",
            remedy="have an administrator grant the verbs 'get' and 'create' on pods/exec and "
            "pods/portforward: since Kubernetes 1.35 the verb 'get' alone does not suffice",
        )
    if found := _DENIED.search(message):
        group = f" of {found['group']}" if found["group"] else ""
        where = f" in namespace {found['namespace']}" if found["namespace"] else " in the whole cluster"
        return DeniedError(
            f"cannot {what}: {found['user']} may not {found['verb']} {found['resource']}{group}{where}",
            remedy=f"have an administrator grant the verb {found['verb']!r} on {found['resource']}{where}",
        )
    return DeniedError(
        f"cannot {what}: {message}", remedy="have a cluster administrator grant the permission named here"
    )


def _conflict(what: str, document: Mapping[str, Any], message: str) -> ConflictError:
    owners = {
        str(cause.get("field", "")): owner[1]
        for cause in _listed(document)
        if cause.get("reason") == "FieldManagerConflict"
        and (owner := _OWNER.search(str(cause.get("message", ""))))
    }
    if owners:
        fields = ", ".join(f"{field} is owned by {owner}" for field, owner in owners.items())
        error = ConflictError(
            f"cannot {what}: {fields}",
            remedy="leave the field to its owner, or take it over by force if the owner no longer manages it",
        )
        error.owners = owners
        return error
    return ConflictError(f"cannot {what}: {message}")


def _overloaded(answer: ErrorResponse, document: Mapping[str, Any], message: str) -> OverloadedError:
    error = OverloadedError(
        f"cannot {answer.what}: the cluster's API server answers {answer.status}: {message}",
        remedy="try again in a minute; `cloudrec doctor --cluster NAME` checks the cluster",
    )
    details = document.get("details")
    seconds = answer.retry_after or (details.get("retryAfterSeconds") if isinstance(details, dict) else None)
    error.wait_s = _seconds(seconds)
    # 429 comes before the call is processed; a 5xx may come after it had an effect.
    error.had_no_effect = answer.status == _TOO_MANY
    return error


def _causes(document: Mapping[str, Any]) -> str:
    causes = [
        f"{cause.get('field', '')}: {cause.get('message', '')}".strip(": ") for cause in _listed(document)
    ]
    return "; ".join(causes)[:_TEXT_LIMIT]


def _listed(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    details = document.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []


def _document(body: bytes) -> dict[str, Any]:
    try:
        return safe_object(body)
    except ValueError:
        return {}


def _seconds(value: object) -> float | None:
    try:
        return max(float(str(value)), 0.0) if value is not None else None
    except ValueError:
        return None
