"""Lists, in pages where they are long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.http import Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.sandbox.azure.call import Call

_SKIP = "$skiptoken"


def page(call: Call, rows: Sequence[dict[str, Any]], size: int) -> Reply:
    """The page of `rows` that the query asks for, with the address of the next one."""
    start = int(call.query.get(_SKIP, "0"))
    end = start + size
    document: dict[str, Any] = {"value": list(rows[start:end])}
    if end < len(rows):
        path, _, query = call.request.target.partition("?")
        kept = [pair for pair in query.split("&") if not pair.lower().startswith(("$skip", "%24skip"))]
        document["nextLink"] = f"{call.base}{path}?{'&'.join([*kept, f'%24skiptoken={end}'])}"
    return json_reply(document)
