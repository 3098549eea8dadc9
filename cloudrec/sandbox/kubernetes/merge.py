"""JSON merge patches and JSON patches."""

from __future__ import annotations

from typing import Any


def without_nulls(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The value without what is null: to an API server that is as good as absent."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(each) for each in value]
    return value


def merged(target: Any, patch: Any) -> Any:  # noqa: ANN401 - JSON
    """RFC 7386: objects are merged, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
