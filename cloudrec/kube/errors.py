"""What a Kubernetes API server answers, or fails to answer, as errors for a person.

KubeError                    1   the API server did not do what was asked
├── UnreachableError         3   nobody answers there, or one whose certificate is not trusted
├── DeniedError              3   401 and 403: who we are, or what we may
├── AbsentError              1   404: no such object, or no such kind of object
├── ConflictError            1   409: it exists, it has changed, or another one owns the field
├── ExpiredError             1   410: so old a version is not known any more
├── InvalidError             2   400 and 422: the server's own words on what is wrong
└── OverloadedError          1   429 and 5xx: not now
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError, PreflightError, UsageError

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
    """The API server did not do what was asked.

    Attributes:
        status: its HTTP status, 0 where there was none.
        reason: its own word for it, such as AlreadyExists; empty where it gave none.
    """

    def __init__(self, message: str, *, remedy: str | None = None, status: int = 0, reason: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.status = status
        self.reason = reason


class UnreachableError(KubeError, PreflightError):
    """Nobody answers at the API server's address, or one whose certificate is not trusted.

    Attributes:
        was_sent: whether the request may have reached the server all the same.
    """

    def __init__(self, message: str, *, remedy: str | None = None, was_sent: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        self.was_sent = was_sent


class DeniedError(KubeError, PreflightError):
    """The server does not know who we are, or we may not do this."""


class AbsentError(KubeError):
    """There is no such object, or no such kind of object."""


class ConflictError(KubeError):
    """It exists already, has changed meanwhile, or somebody else owns a field.

    Attributes:
        owners: who owns which field, where that is the reason.
    """

    owners: Mapping[str, str] = {}

    @property
    def exists(self) -> bool:
        """Whether the object is there already."""
        return self.reason == "AlreadyExists"


class ExpiredError(KubeError):
    """A list or a watch asked for a version that the server has forgotten."""


class InvalidError(KubeError, UsageError):
    """The server refuses the object itself; it will refuse it again."""


class OverloadedError(KubeError):
    """The server has no time for this now, or is not well.

    Attributes:
        wait_s: seconds that it asks us to wait, None where it names none.
        had_no_effect: whether it says that nothing was done.
    """

    wait_s: float | None = None
    had_no_effect: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server said that it would not do.

    Attributes:
        status: the HTTP status.
        body: the answer, a Status object where all is well with the server.
        retry_after: the header of that name.
        what: what was asked, for a person: "list pods in namespace runs".
        server: whom.
    """

    status: int
    body: bytes
    retry_after: str | None
    what: str
    server: str


def error_of(answer: Answer) -> KubeError:
    """Return the error that a person can act on."""
    document = _document(answer.body)
    said = str(document.get("message") or answer.body.decode(errors="replace").strip() or answer.status)
    said = said[:_TEXT_LIMIT]
    reason = str(document.get("reason") or "")
    found = _known(answer, document, said, reason)
    found.status, found.reason = answer.status, reason
    return found


def _known(answer: Answer, document: Mapping[str, Any], said: str, reason: str) -> KubeError:
    what, status = answer.what, answer.status
    if status == _TOO_MANY or status >= _SERVER:
        return _overloaded(answer, document, said)
    if status == _FORBIDDEN:
        return _forbidden(what, said, reason)
    if status == _CONFLICT:
        return _conflict(what, document, said)
    simple: dict[int, KubeError] = {
        _UNAUTHORIZED: DeniedError(
            f"the cluster at {answer.server} does not accept our credentials (401): cannot {what}",
            remedy="log in to the cloud again, or name the right cluster: `cloudrec doctor` shows both",
        ),
        _NOT_FOUND: AbsentError(f"cannot {what}: {said}"),
        _GONE: ExpiredError(f"cannot {what}: {said}", remedy="list anew"),
        _BAD_REQUEST: InvalidError(f"the cluster refuses to {what}: {_causes(document) or said}"),
        _INVALID: InvalidError(f"the cluster refuses to {what}: {_causes(document) or said}"),
    }
    return simple.get(status) or KubeError(f"cannot {what}: the server answers {status}: {said}")


def _forbidden(what: str, said: str, reason: str) -> KubeError:
    if "exceeded quota" in said:
        return DeniedError(
            f"cannot {what}: {said}",
            remedy="ask for less, or have whoever looks after the namespace raise its ResourceQuota",
        )
    if "being terminated" in said or reason == "NamespaceTerminating":
        return OverloadedError(
            f"cannot {what}: the namespace is being deleted", remedy="wait until it is gone, then try again"
        )
    if found := _DENIED.search(said):
        group = f" of {found['group']}" if found["group"] else ""
        where = f" in namespace {found['namespace']}" if found["namespace"] else " in the whole cluster"
        return DeniedError(
            f"cannot {what}: {found['user']} may not {found['verb']} {found['resource']}{group}{where}",
            remedy=f"have an administrator grant the verb {found['verb']!r} on {found['resource']}{where}",
        )
    return DeniedError(
        f"cannot {what}: {said}", remedy="have a cluster administrator grant the permission named here"
    )


def _conflict(what: str, document: Mapping[str, Any], said: str) -> ConflictError:
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
            remedy="leave the field to its owner, or take it over by force if nobody else looks after it",
        )
        error.owners = owners
        return error
    return ConflictError(f"cannot {what}: {said}")


def _overloaded(answer: Answer, document: Mapping[str, Any], said: str) -> OverloadedError:
    error = OverloadedError(
        f"cannot {answer.what}: the cluster's API server answers {answer.status}: {said}",
        remedy="try again in a minute; `cloudrec doctor` tells how the cluster is",
    )
    details = document.get("details")
    seconds = answer.retry_after or (details.get("retryAfterSeconds") if isinstance(details, dict) else None)
    error.wait_s = _seconds(seconds)
    error.had_no_effect = answer.status == _TOO_MANY
    return error


def _causes(document: Mapping[str, Any]) -> str:
    told = [
        f"{cause.get('field', '')}: {cause.get('message', '')}".strip(": ") for cause in _listed(document)
    ]
    return "; ".join(told)[:_TEXT_LIMIT]


def _listed(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    details = document.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return [cause for cause in causes or [] if isinstance(cause, dict)]


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _seconds(value: object) -> float | None:
    try:
        return max(float(str(value)), 0.0) if value is not None else None
    except ValueError:
        return None
