"""The stand-in's refusals."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.core.faults import Fault
    from cloudrec_sandbox.core.http import Reply

# The error code of each service for too many requests; the others use Throttling with 400.
_THROTTLES = {
    "ec2": ("RequestLimitExceeded", HTTPStatus.SERVICE_UNAVAILABLE),
    "eks": ("ThrottlingException", HTTPStatus.TOO_MANY_REQUESTS),
    "s3": ("SlowDown", HTTPStatus.SERVICE_UNAVAILABLE),
    "fsx": ("ThrottlingException", HTTPStatus.BAD_REQUEST),
    "kms": ("ThrottlingException", HTTPStatus.BAD_REQUEST),
    "logs": ("ThrottlingException", HTTPStatus.BAD_REQUEST),
    "service-quotas": ("TooManyRequestsException", HTTPStatus.BAD_REQUEST),
}


class AwsError(Exception):
    """A refusal of AWS: code, message, HTTP status, and the members of the service's error shape."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = HTTPStatus.BAD_REQUEST,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.fields = dict(fields or {})


class PassedOnError(Exception):
    """Moto refused the call, and its refusal is the answer."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"HTTP {reply.status}")
        self.reply = reply


def ordered(fault: Fault, service: str) -> AwsError:
    """Return the refusal that a fault orders; for the kinds throttle, error and 5xx."""
    if fault.kind == "throttle":
        code, status = _THROTTLES.get(service, ("Throttling", HTTPStatus.BAD_REQUEST))
        return AwsError(code, "Rate exceeded", status=status)
    least = HTTPStatus.INTERNAL_SERVER_ERROR if fault.kind == "5xx" else 0
    return AwsError(fault.code, fault.message, status=max(fault.status, least))
