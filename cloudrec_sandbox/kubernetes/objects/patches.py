"""JSON patches and strategic merge patches."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.objects.table import copied

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.objects.schema import Node

_DIRECTIVES = ("$patch", "$retainKeys", "$setElementOrder/", "$deleteFromPrimitiveList/")
_MOST = 10_000


def strategic(node: Node, live: Any, patch: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the live value after a strategic merge patch: lists with a merge key are merged by it."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    result = dict(live) if isinstance(live, dict) else {}
    for name, value in patch.items():
        if name.startswith(_DIRECTIVES):
            _direct(result, name, value)
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = _changed(node.child(name), result.get(name), value)
    if "$retainKeys" in patch:
        return {name: value for name, value in result.items() if name in patch["$retainKeys"]}
    return result


def _direct(result: dict[str, Any], name: str, value: Any) -> None:  # noqa: ANN401 - JSON
    directive, _, target = name.partition("/")
    if directive == "$deleteFromPrimitiveList" and target in result:
        result[target] = [each for each in result[target] if each not in value]


def _changed(node: Node, live: Any, patch: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(patch, list) and node.patch_merges:
        return _list_changed(node, live or [], patch)
    return strategic(node, live, patch)


def _list_changed(node: Node, live: list[Any], patch: list[Any]) -> list[Any]:
    key = node.patch_key
    if not key:
        return [*live, *(each for each in patch if each not in live)]
    if any(each.get("$patch") == "replace" for each in patch):
        return [each for each in patch if "$patch" not in each]
    result = list(live)
    for each in patch:
        place = next((index for index, old in enumerate(result) if old.get(key) == each.get(key)), None)
        if each.get("$patch") == "delete":
            result = [old for old in result if old.get(key) != each.get(key)]
        elif place is None:
            result.append(strategic(node.items, {}, each))
        else:
            result[place] = strategic(node.items, result[place], each)
    return result


def json_patch(document: dict[str, Any], steps: Any) -> Any:  # noqa: ANN401 - JSON
    """Apply a patch of RFC 6902; refused with 400 if malformed, with 422 if it does not fit."""
    if not isinstance(steps, list):
        raise errors.bad_request("error decoding patch: a JSON patch is a list of operations")
    if len(steps) > _MOST:
        raise errors.ApiError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {_MOST}, got {len(steps)}",
        )
    result: Any = copied(document)
    for step in steps:
        try:
            result = _step(result, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise errors.ApiError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "Invalid",
                "the server rejected our request due to an error in our request",
            ) from error
    return result


def _step(document: Any, step: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    operation, path = step["op"], _pointer(step["path"])
    if operation == "test":
        if _found(document, path) != step["value"]:
            raise ValueError(step["path"])
        return document
    if operation in ("move", "copy"):
        source = _pointer(step["from"])
        value = _found(document, source)
        if operation == "move":
            _remove(document, source)
    elif operation == "remove":
        _remove(document, path)
        return document
    elif operation in ("add", "replace"):
        value = step["value"]
    else:
        raise ValueError(operation)
    return _set(document, path, value, new=operation != "replace")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(text)
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _found(document: Any, path: list[str]) -> Any:  # noqa: ANN401 - JSON
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _remove(document: Any, path: list[str]) -> None:  # noqa: ANN401 - JSON
    parent = _found(document, path[:-1])
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]


def _set(document: Any, path: list[str], value: Any, *, new: bool) -> Any:  # noqa: ANN401 - JSON
    if not path:
        return value
    parent, last = _found(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        if not new:
            parent[int(last)] = value
        else:
            place = len(parent) if last == "-" else int(last)
            if place > len(parent):
                raise IndexError(last)
            parent.insert(place, value)
        return document
    if not new and last not in parent:
        raise KeyError(last)
    parent[last] = value
    return document
