"""JSON merge patches and JSON patches."""

from __future__ import annotations

from typing import Any


def without_nulls(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the value without nulls, which an API server treats as absent."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(each) for each in value]
    return value


def merged(target: Any, patch: Any) -> Any:  # noqa: ANN401 - JSON
    """Merge by RFC 7386: objects are merged, null removes, other values replace."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
