"""The stand-in's refusals, in Google's three formats."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.json_format import MessageToDict
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from cloudrec_sandbox.core.http import Reply, json_reply
from cloudrec_sandbox.gcp.api.apis import APIS, NUMBER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.core.faults import Fault


class Code(NamedTuple):
    """A canonical code: gRPC's number, HTTP's status, and the older APIs' usual reason."""

    number: int
    http: int
    reason: str


CODES = {
    "CANCELLED": Code(1, 499, "cancelled"),
    "UNKNOWN": Code(2, 500, "backendError"),
    "INVALID_ARGUMENT": Code(3, 400, "invalid"),
    "FAILED_PRECONDITION": Code(9, 400, "failedPrecondition"),
    "OUT_OF_RANGE": Code(11, 400, "outOfRange"),
    "UNAUTHENTICATED": Code(16, 401, "authError"),
    "PERMISSION_DENIED": Code(7, 403, "forbidden"),
    "NOT_FOUND": Code(5, 404, "notFound"),
    "ALREADY_EXISTS": Code(6, 409, "alreadyExists"),
    "ABORTED": Code(10, 409, "aborted"),
    "RESOURCE_EXHAUSTED": Code(8, 429, "rateLimitExceeded"),
    "INTERNAL": Code(13, 500, "backendError"),
    "UNIMPLEMENTED": Code(12, 501, "notImplemented"),
    "UNAVAILABLE": Code(14, 503, "backendError"),
    "DEADLINE_EXCEEDED": Code(4, 504, "timeout"),
}
_CONFLICTS = {"storage": "conflict"}  # the reason of a service's 409s


class GcpError(Exception):
    """A refusal: canonical code and message.

    Attributes:
        reason: of the ErrorInfo, and in the older APIs' list of errors; '' for none and the usual one.
        classic: the reason in the older APIs' list, if it is another one.
        http: the HTTP status, if it is not the code's usual one; compute answers 403 to many errors.
        metadata: of the ErrorInfo.
        details: further messages of google.rpc for the list of details.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        reason: str = "",
        classic: str = "",
        http: int | None = None,
        metadata: Mapping[str, str] | None = None,
        details: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        self.classic = classic
        self.http = int(http or CODES[code].http)
        self.metadata = dict(metadata or {})
        self.details = details

    @property
    def number(self) -> int:
        """Return gRPC's number of the code."""
        return CODES[self.code].number


def reply(error: GcpError, service: str) -> Reply:
    """Return the refusal in the format of a REST service."""
    document: dict[str, Any] = {"code": error.http, "message": error.message}
    classic = service in APIS and APIS[service].classic
    if classic:
        reason = error.classic or error.reason or _usual_reason(error, service)
        first = {"message": error.message, "domain": "global", "reason": reason}
        if error.http == HTTPStatus.UNAUTHORIZED:
            first |= {"locationType": "header", "location": "Authorization"}
        document["errors"] = [first]
    if not classic or error.metadata:
        document["status"] = error.code
        details = MessageToDict(status_of(error, service)).get("details", [])
        if details:
            document["details"] = details
    return json_reply({"error": document}, error.http)


def _usual_reason(error: GcpError, service: str) -> str:
    if error.http == HTTPStatus.PRECONDITION_FAILED:
        return "conditionNotMet"
    if error.http == HTTPStatus.CONFLICT and service in _CONFLICTS:
        return _CONFLICTS[service]
    return CODES[error.code].reason


def status_of(error: GcpError, service: str) -> Status:
    """Return the refusal as gRPC and operations carry it."""
    status = Status(code=error.number, message=error.message)
    if error.reason:
        domain = "googleapis.com" if error.metadata else (APIS[service].host if service in APIS else "")
        status.details.add().Pack(
            ErrorInfo(reason=error.reason, domain=domain, metadata=error.metadata),
        )
    for detail in error.details:
        status.details.add().Pack(detail)
    return status


def ordered(fault: Fault, service: str) -> GcpError:
    """Return the refusal that a fault orders; for the kinds throttle, error and 5xx."""
    if fault.kind == "throttle":
        return _throttled(service)
    if fault.kind == "5xx":
        code = "UNAVAILABLE" if fault.status == HTTPStatus.SERVICE_UNAVAILABLE else "INTERNAL"
        return GcpError(code, fault.message, http=max(fault.status, HTTPStatus.INTERNAL_SERVER_ERROR))
    if fault.code in CODES:
        return GcpError(fault.code, fault.message)
    code = next((name for name, code in CODES.items() if code.http == fault.status), "UNKNOWN")
    return GcpError(code, fault.message, reason=fault.code, http=fault.status)


def _throttled(service: str) -> GcpError:
    host = APIS[service].host if service in APIS else "googleapis.com"
    text = (
        f"Quota exceeded for quota metric 'Requests' and limit 'Requests per minute' of service '{host}' for"
        f" consumer 'project_number:{NUMBER}'."
    )
    if service == "compute":
        return GcpError("PERMISSION_DENIED", text, reason="rateLimitExceeded")
    if service == "storage":
        return GcpError("RESOURCE_EXHAUSTED", "The rate of requests is too high.")
    return GcpError(
        "RESOURCE_EXHAUSTED",
        text,
        reason="RATE_LIMIT_EXCEEDED",
        metadata={"service": host, "consumer": f"projects/{NUMBER}"},
    )
