"""Errors of a program in execution, as maps of the language ("Workflow errors" of its reference)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.errors import GcpError


class ProgramError(Exception):
    """An error that a program may catch.

    Attributes:
        map: the error as the program sees it: its tags, its message, and of an HTTP error its code.
    """

    def __init__(self, tag: str, message: str, **more: Any) -> None:  # noqa: ANN401 - JSON
        super().__init__(f"{tag}: {message}")
        self.map: dict[str, Any] = {"tags": [tag], "message": message, **more}


class DeploymentError(Exception):
    """A program that Workflows refuses to deploy."""


class NotImplementedHereError(Exception):
    """A part of the language that this stand-in does not have."""


def of_http(error: GcpError) -> ProgramError:
    """Return the error of an HTTP call that was refused."""
    text = f"HTTP server responded with error code {error.http}"
    body = {"error": {"code": error.http, "message": error.message, "status": error.code}}
    return ProgramError("HttpError", text, code=error.http, body=body, headers={})
