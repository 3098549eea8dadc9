"""Lists in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from cloudrec_sandbox.gcp.api.errors import GcpError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.gcp.api.call import Call

QUERY = ("filter", "maxResults", "orderBy", "pageSize", "pageToken", "returnPartialSuccess")
_MOST = 500
T = TypeVar("T")


def page(items: Sequence[T], call: Call) -> tuple[list[T], str]:
    """Return the page that a call names, and the token of the next page ('' after the last)."""
    size = call.query.get("maxResults") or call.query.get("pageSize") or _MOST
    return part(items, int(size), call.query.get("pageToken", ""))


def part(items: Sequence[T], size: int, token: str) -> tuple[list[T], str]:
    """Return at most `size` items from where a token points, and the next token."""
    if token and not token.isdecimal():
        raise GcpError("INVALID_ARGUMENT", f"Invalid value for field 'pageToken': '{token}'.")
    start = int(token or 0)
    end = start + (min(size, _MOST) if size > 0 else _MOST)
    return list(items[start:end]), str(end) if end < len(items) else ""
