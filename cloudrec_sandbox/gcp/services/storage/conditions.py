"""Preconditions on generations and metagenerations."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api.errors import GcpError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.gcp.api.call import Call

METAGENERATION = ("ifMetagenerationMatch", "ifMetagenerationNotMatch")
ALL = ("ifGenerationMatch", "ifGenerationNotMatch", *METAGENERATION)


def check(call: Call, document: Mapping[str, Any] | None) -> None:
    """Raise GcpError (412, or 304 of reads) unless a call's conditions hold for the object or its absence."""
    for name in ALL:
        wanted = call.query.get(name)
        if wanted is None:
            continue
        field = "metageneration" if "Meta" in name else "generation"
        found = str(document[field]) if document else "0"
        if (found == wanted) is name.endswith("NotMatch"):
            reading = call.raw.method == "GET" and name.endswith("NotMatch")
            raise GcpError(
                "FAILED_PRECONDITION",
                "At least one of the pre-conditions you specified did not hold.",
                http=HTTPStatus.NOT_MODIFIED if reading else HTTPStatus.PRECONDITION_FAILED,
            )
