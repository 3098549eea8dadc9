"""Azure's refusals."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.http import json_reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.core.faults import Fault
    from cloudrec_sandbox.core.http import Reply

_RETRY_AFTER_S = 10
# The error code of each service for too many requests; the others use ARM's own.
_THROTTLES = {
    "compute": "OperationNotAllowed",
    "containerservice": "Throttled",
    "network": "TooManyRequests",
    "storage": "TooManyRequests",
}


class ArmError(Exception):
    """A refusal: code, message, HTTP status, headers, and more of the error document (`details`, ...)."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = HTTPStatus.BAD_REQUEST,
        headers: Sequence[tuple[str, str]] = (),
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = int(status)
        self.headers = tuple(headers)
        self.more = dict(more or {})

    def document(self) -> dict[str, Any]:
        """Return the error as Azure's document."""
        return {"code": self.code, "message": self.message, **self.more}

    def reply(self) -> Reply:
        """Return the error as a reply."""
        headers = (("x-ms-failure-cause", "gateway"), *self.headers)
        return json_reply({"error": self.document()}, self.status, headers)


def not_found(path: str, kind: str, group: str) -> ArmError:
    """Return the error for a resource that does not exist."""
    return ArmError(
        "ResourceNotFound",
        f"The Resource '{kind}/{path.rpartition('/')[2]}' under resource group '{group or '<null>'}' was not "
        "found. For more details please go to https://aka.ms/ARMResourceNotFoundFix",
        status=HTTPStatus.NOT_FOUND,
    )


def group_not_found(group: str) -> ArmError:
    """Return the error for a resource group that does not exist, or cannot be seen yet."""
    return ArmError(
        "ResourceGroupNotFound", f"Resource group '{group}' could not be found.", status=HTTPStatus.NOT_FOUND
    )


def malformed(code: str, faults: Sequence[str]) -> ArmError:
    """Return the error for a body that the type's API does not accept."""
    return ArmError(
        code, f"The request content was invalid and could not be deserialized: {'; '.join(faults)}"
    )


def throttled(service: str, *, retry_after: int = _RETRY_AFTER_S) -> ArmError:
    """Return the error for too many calls; `retry_after` in virtual seconds."""
    code = _THROTTLES.get(service, "SubscriptionRequestsThrottled")
    message = (
        "Number of requests for subscription exceeded the limit. "
        f"Please try again after '{retry_after}' seconds."
    )
    headers = [("Retry-After", str(retry_after))]
    return ArmError(code, message, status=HTTPStatus.TOO_MANY_REQUESTS, headers=headers)


def ordered(fault: Fault, service: str) -> ArmError:
    """Return the refusal that a fault orders; for the kinds throttle, error and 5xx."""
    if fault.kind == "throttle":
        return throttled(service)
    least = HTTPStatus.INTERNAL_SERVER_ERROR if fault.kind == "5xx" else 0
    return ArmError(fault.code, fault.message, status=max(fault.status, least))
