"""Long-running operations: begun without the SDK's waiting, kept as text, and polled by `look`.

Azure answers a changing call before the change is done, with the address of an operation. Only that operation
reports why a change failed: the resource itself has no more than the state Failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from azure.core.exceptions import HttpResponseError

from cloudrec.providers.azure import errors
from cloudrec.providers.azure.errors import object_of
from cloudrec.providers.base.operated import OperationFailedError, OperationProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from azure.core.pipeline import PipelineResponse
    from azure.core.rest import HttpRequest, HttpResponse

    from cloudrec.providers.azure.api.client import Azure

_Answer: TypeAlias = "PipelineResponse[HttpRequest, HttpResponse]"
# Headers with the operation's address. A GET of the first returns a body with the status and the error; of
# the second, only the status code 202 until the operation ends.
_HEADERS = ("Azure-AsyncOperation", "Location")
_ACCEPTED = 202
_SUCCEEDED = frozenset({"succeeded"})
_FAILED = frozenset({"failed", "canceled", "cancelled"})


class _Kept:
    """A polling method for the SDK that only keeps the operation's address from the first response."""

    operation = ""  # as `look` takes it; empty if the change was done at once

    def initialize(self, client: object, initial_response: _Answer, callback: object) -> None:
        """Read the operation's address from the headers of the first response."""
        del client, callback
        headers = initial_response.http_response.headers
        found = [f"{name} {headers[name]}" for name in _HEADERS if headers.get(name)]
        self.operation = found[0] if found else ""

    def finished(self) -> bool:
        """Return True, so that the SDK starts no thread that polls."""
        return True


def begin(call: Callable[..., object], *arguments: object, **parameters: object) -> str:
    """Make a changing call once and return its operation as text; empty if the change was done at once.

    Args:
        call: one of the SDK's `begin_` methods.
        arguments: the method's positional arguments.
        parameters: the method's keyword arguments.
    """
    kept = _Kept()
    call(*arguments, polling=kept, **parameters)
    return kept.operation


def look(azure: Azure, operation: str) -> OperationProgress:
    """Return how far an operation has come, with one call to Azure.

    Azure deletes the record of an operation after about a day, and some when they are done. An operation
    without a record counts as done: the resource has the result.

    Raises:
        azure.core.exceptions.HttpResponseError: Azure does not answer, or refuses to show the operation.
    """
    header, _, url = operation.partition(" ")
    try:
        response = azure.get(azure.send, "GET", url)
    except HttpResponseError as error:
        # A refusal by the address of a Location header is the operation's own error.
        if errors.is_transient(error) or header == _HEADERS[0]:
            raise
        return _failed(errors.code(error), errors.message(error))
    if response is None:
        return OperationProgress(is_done=True)
    if header != _HEADERS[0]:
        return OperationProgress(is_done=response.status_code != _ACCEPTED)
    body = object_of(response)
    status = str(body.get("status") or "")
    if status.lower() in _FAILED:
        error_body = body.get("error") or {}
        code = str(error_body.get("code") or status)
        return _failed(code, errors.joined(error_body) or f"it {status.lower()}")
    return OperationProgress(is_done=status.lower() in _SUCCEEDED)


def _failed(code: str, message: str) -> OperationProgress:
    return OperationProgress(is_done=True, error=OperationFailedError(code, message))
