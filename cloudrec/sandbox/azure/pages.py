"""Lists, in pages where they are long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.azure.errors import ArmError
from cloudrec.sandbox.azure.odata import FilterError, parse
from cloudrec.sandbox.http import Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

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


def matching(
    call: Call,
    rows: Iterable[dict[str, Any]],
    *,
    code: str = "UnsupportedQuery",
    functions: Mapping[str, Callable[..., bool]] | None = None,
    names: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """The rows that the query's $filter finds; refused with `code` where it cannot be read."""
    text = call.query.get("$filter", "")
    if not text:
        return list(rows)
    try:
        test = parse(text, functions=functions, names=names)
    except FilterError as error:
        raise ArmError(code, f"The filter '{text}' is not supported: {error}.") from error
    return [row for row in rows if test(row)]
