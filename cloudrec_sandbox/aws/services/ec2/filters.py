"""Filters of Describe calls, for the rows of the stand-in."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Row = dict[str, Any]


def with_tags(rows: Iterable[Row], filters: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the rows that match all filters by tag; other filters are ignored."""
    kept = list(rows)
    for wanted in filters:
        name, values = wanted["Name"], wanted.get("Values", [])
        if name.startswith("tag:"):
            key = name.removeprefix("tag:")
            kept = [row for row in kept if _matches(_tags(row).get(key), values)]
        elif name == "tag-key":
            kept = [row for row in kept if any(_matches(key, values) for key in _tags(row))]
    return kept


def matching(
    rows: Iterable[Row],
    filters: Iterable[Mapping[str, Any]],
    values: Mapping[str, Callable[[Row], Any]],
) -> list[Row]:
    """Return the rows that match all filters; `values` has a function for each filter, which reads a row.

    AwsError for a filter that is not in `values`.
    """
    filters = list(filters)
    kept = with_tags(rows, filters)
    for wanted in filters:
        name = wanted["Name"]
        if name.startswith("tag:") or name == "tag-key":
            continue
        if name not in values:
            raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")
        kept = [row for row in kept if _matches(values[name](row), wanted.get("Values", []))]
    return kept


def _tags(row: Row) -> dict[str, str]:
    return {tag["Key"]: tag.get("Value", "") for tag in row.get("Tags", [])}


def _matches(value: Any, patterns: Iterable[str]) -> bool:  # noqa: ANN401 - any value of a row
    return value is not None and any(fnmatchcase(str(value), pattern) for pattern in patterns)
