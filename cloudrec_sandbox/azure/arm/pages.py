"""Lists, split into pages if they are long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.odata import FilterError, parse
from cloudrec_sandbox.core.http import Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from cloudrec_sandbox.azure.arm.call import Call

_SKIP = "$skiptoken"


def page(call: Call, rows: Sequence[dict[str, Any]], size: int) -> Reply:
    """Return the page of `rows` that the query names, with the address of the next one."""
    start = int(call.query.get(_SKIP, "0"))
    end = start + size
    document: dict[str, Any] = {"value": list(rows[start:end])}
    if end < len(rows):
        path, _, query = call.request.target.partition("?")
        kept = [pair for pair in query.split("&") if not pair.lower().startswith(("$skip", "%24skip"))]
        document["nextLink"] = f"{call.base}{path}?{'&'.join([*kept, f'%24skiptoken={end}'])}"
    return json_reply(document)


def matching(
    call: Call,
    rows: Iterable[dict[str, Any]],
    *,
    code: str = "UnsupportedQuery",
    functions: Mapping[str, Callable[..., bool]] | None = None,
    names: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """Return the rows that match the query's $filter; refused with `code` if it cannot be parsed."""
    text = call.query.get("$filter", "")
    if not text:
        return list(rows)
    try:
        test = parse(text, functions=functions, names=names)
    except FilterError as error:
        raise ArmError(code, f"The filter '{text}' is not supported: {error}.") from error
    return [row for row in rows if test(row)]
