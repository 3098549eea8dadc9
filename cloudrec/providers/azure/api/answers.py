"""Answers that are not Azure Resource Manager's: a proxy's page, or one that is empty or damaged.

The SDK reads such an answer as a resource without properties, or raises any exception of its parsers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from azure.core.exceptions import DecodeError
from azure.core.pipeline.policies import SansIOHTTPPolicy

from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from azure.core.pipeline import PipelineRequest, PipelineResponse

_OK, _CREATED, _REDIRECT = 200, 201, 300
_WITH_BODY = {"GET", "PUT", "PATCH"}
_SHOWN = 80  # bytes of a foreign answer in a message


class ForeignAnswerPolicy(SansIOHTTPPolicy[Any, Any]):
    """Raises DecodeError for a successful answer that is not JSON, or has no body where the API has one.

    By the resource provider contract of Azure Resource Manager, GET, PUT and PATCH answer 200 or 201 with the
    resource. The address of an operation may answer 200 without a body once the operation is done.
    """

    def on_response(self, request: PipelineRequest[Any], response: PipelineResponse[Any, Any]) -> None:
        """Check an answer before the SDK's own policies read it."""
        answer = response.http_response
        if not _OK <= answer.status_code < _REDIRECT:
            return
        body = _body(answer, is_stream=bool(response.context.options.get("stream", False)))
        if body:
            try:
                safe_json(body, numbers="any")
            except ValueError as error:
                raise _foreign(request, answer, body) from error
            return
        path = str(request.http_request.url).partition("?")[0].lower()
        is_resource = request.http_request.method in _WITH_BODY and "operation" not in path
        if is_resource and answer.status_code in {_OK, _CREATED}:
            raise _foreign(request, answer, body)


def _body(answer: Any, *, is_stream: bool) -> bytes:  # noqa: ANN401 - untyped
    """Return the body of an answer of a current client, or of one that uses azure-core's older transport."""
    read = getattr(answer, "read", None)
    if read is None:  # the older transport
        return bytes(answer.body())
    if is_stream:
        read()
    return bytes(answer.content)


def _foreign(request: PipelineRequest[Any], answer: Any, body: bytes) -> DecodeError:  # noqa: ANN401 - untyped
    shown = body[:_SHOWN].decode("utf-8", errors="replace")
    called = f"{request.http_request.method} {str(request.http_request.url).partition('?')[0]}"
    return DecodeError(message=f"{called} is answered with {shown!r}", response=answer)
