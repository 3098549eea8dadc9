"""Refusals of Blob Storage: XML with a code, which the header x-ms-error-code has as well."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from cloudrec_sandbox.core.http import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.core.faults import Fault


class BlobError(Exception):
    """A refusal: code, message, HTTP status, further headers."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = HTTPStatus.BAD_REQUEST,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = int(status)
        self.headers = tuple(headers)

    def reply(self) -> Reply:
        """Return the error as a reply."""
        if self.status == HTTPStatus.NOT_MODIFIED:
            return Reply(status=self.status, headers=(("x-ms-error-code", self.code), *self.headers))
        text = (
            '<?xml version="1.0" encoding="utf-8"?>'
            f"<Error><Code>{escape(self.code)}</Code><Message>{escape(self.message)}</Message></Error>"
        )
        headers = (("x-ms-error-code", self.code), ("Content-Type", "application/xml"), *self.headers)
        return Reply(status=self.status, headers=headers, body=text.encode())


def ordered(fault: Fault) -> BlobError:
    """Return the refusal that a fault orders; for the kinds throttle, error and 5xx."""
    if fault.kind == "throttle":
        message = "The server is currently unable to receive requests. Please retry your request."
        return BlobError("ServerBusy", message, status=HTTPStatus.SERVICE_UNAVAILABLE)
    least = HTTPStatus.INTERNAL_SERVER_ERROR if fault.kind == "5xx" else 0
    return BlobError(fault.code, fault.message, status=max(fault.status, least))


def bad_header(name: str, value: str) -> BlobError:
    """Return the refusal of a header's value."""
    return BlobError(
        "InvalidHeaderValue",
        f"The value for one of the HTTP headers is not in the correct format. ({name}: {value})",
    )


def bad_query(name: str, value: str) -> BlobError:
    """Return the refusal of a query parameter's value."""
    return BlobError(
        "InvalidQueryParameterValue",
        f"Value for one of the query parameters specified in the request URI is invalid. ({name}={value})",
    )


def missing_header(name: str) -> BlobError:
    """Return the refusal of a request without a header."""
    return BlobError(
        "MissingRequiredHeader",
        f"An HTTP header that's mandatory for this request is not specified. ({name})",
    )


def no_blob() -> BlobError:
    """Return the refusal of a read of a blob that does not exist."""
    return BlobError("BlobNotFound", "The specified blob does not exist.", status=HTTPStatus.NOT_FOUND)


def condition_failed() -> BlobError:
    """Return the refusal of a request whose condition does not hold."""
    return BlobError(
        "ConditionNotMet",
        "The condition specified using HTTP conditional header(s) is not met.",
        status=HTTPStatus.PRECONDITION_FAILED,
    )
