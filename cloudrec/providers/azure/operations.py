"""Long-running operations: begun without the SDK's own waiting, kept as text, looked at when somebody asks.

Azure answers a changing call before the change is done, with the address of an operation. That operation,
and nothing else, tells why a change failed: the thing itself only says that it did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from azure.core.exceptions import HttpResponseError

from cloudrec.providers.azure import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.providers.azure.client import Azure

# Where an answer tells the operation's address; the first tells its status too, the second only its end.
_HEADERS = ("Azure-AsyncOperation", "Location")
_ACCEPTED = 202
_REMOVAL = "removal "  # what the text of a change that takes the thing away begins with
_SUCCEEDED = frozenset({"succeeded"})
_FAILED = frozenset({"failed", "canceled", "cancelled"})


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an operation has come; `error` says why it failed."""

    is_done: bool
    error: errors.OperationFailedError | None = None


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change under way, or the one that failed last.

    Attributes:
        operation: as `look` takes it.
        again: begins it anew; None where another process began it.
        is_removal: whether it takes the thing away.
    """

    operation: str
    again: Callable[[], object] | None = None
    is_removal: bool = False

    @property
    def text(self) -> str:
        """As another process can take it up."""
        return f"{_REMOVAL}{self.operation}" if self.is_removal else self.operation

    @classmethod
    def of(cls, text: str) -> Self:
        """Take up what another process began."""
        return cls(operation=text.removeprefix(_REMOVAL), is_removal=text.startswith(_REMOVAL))


class _Kept:
    """Stands where the SDK wants a way of polling, and keeps the first answer: how it goes on, we ask."""

    operation = ""  # as `look` takes it; empty where all was done at once

    def initialize(self, client: object, initial_response: Any, callback: object) -> None:  # noqa: ANN401 - the SDK is seen as Any
        """Take the first answer."""
        del client, callback
        headers = initial_response.http_response.headers
        told = [f"{name} {headers[name]}" for name in _HEADERS if headers.get(name)]
        self.operation = told[0] if told else ""

    def finished(self) -> bool:
        """Let the SDK start no thread."""
        return True


def begin(call: Callable[..., Any], *arguments: object, **parameters: object) -> str:
    """Make a changing call once and return its operation as text; empty where all was done at once.

    Args:
        call: one of the SDK's `begin_` methods.
        arguments: its own.
        parameters: its own.
    """
    kept = _Kept()
    call(*arguments, polling=kept, **parameters)
    return kept.operation


def look(azure: Azure, operation: str) -> Progress:
    """Ask once how far an operation has come.

    Azure forgets operations after a day or so, and some once they are done; then the thing itself tells.
    """
    header, _, url = operation.partition(" ")
    try:
        response = azure.get(azure.send, "GET", url)
    except HttpResponseError as error:
        if errors.is_transient(error) or header == _HEADERS[0]:
            raise
        return _failed(errors.code(error), errors.message(error))
    if response is None:
        return Progress(is_done=True)
    if header != _HEADERS[0]:
        return Progress(is_done=response.status_code != _ACCEPTED)
    body = response.json()
    status = str(body["status"])
    if status.lower() in _FAILED:
        told = body.get("error") or {}
        return _failed(str(told.get("code") or status), errors.joined(told) or f"it {status.lower()}")
    return Progress(is_done=status.lower() in _SUCCEEDED)


def _failed(code: str, message: str) -> Progress:
    return Progress(is_done=True, error=errors.OperationFailedError(code, message))
