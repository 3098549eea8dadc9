"""The refusals of Logic Apps."""

from __future__ import annotations

from http import HTTPStatus

from cloudrec_sandbox.azure.arm.errors import ArmError


def invalid(reason: str) -> ArmError:
    """Return the refusal of a definition that is wrong."""
    return ArmError(
        "InvalidTemplate", f"The template validation failed: '{reason}'.", status=HTTPStatus.BAD_REQUEST
    )


def absent(what: str) -> ArmError:
    """Return the answer to what Logic Apps has and this stand-in has not."""
    return ArmError("NotImplemented", f"this stand-in has not: {what}", status=HTTPStatus.NOT_IMPLEMENTED)
