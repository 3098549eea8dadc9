"""Sets of fields, as managedFields store them: which manager owns what in an object.

A set is a tree in the FieldsV1 form: "f:NAME" below an object, 'k:{"name":"x"}' and 'v:"x"' below a list, "."
for the value itself; a leaf is {}.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.kubernetes.objects.schema import Node

Tree = dict[str, Any]


def children(node: Node, value: Any) -> Iterator[tuple[str, Node, Any]] | None:  # noqa: ANN401 - JSON
    """Yield the parts that are owned one by one, with their names; None if the value is owned as a whole."""
    if isinstance(value, dict) and not node.is_atomic:
        return ((f"f:{name}", node.child(name), each) for name, each in value.items())
    if isinstance(value, list) and node.list_type == "map":
        return (
            (f"k:{_compact(node.key_of(each))}", node.items, each) for each in value if isinstance(each, dict)
        )
    if isinstance(value, list) and node.list_type == "set":
        return ((f"v:{_compact(each)}", node.items, each) for each in value)
    return None


def _compact(value: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def owned(node: Node, value: Any) -> Tree:  # noqa: ANN401 - JSON
    """Return all fields of a value."""
    parts = children(node, value)
    if parts is None:
        return {}
    return {name: _with_self(name, owned(below, each)) for name, below, each in parts}


def _with_self(name: str, tree: Tree) -> Tree:
    return {".": {}, **tree} if name.startswith("k:") else tree


def changed(node: Node, old: Any, new: Any) -> tuple[Tree | None, Tree | None]:  # noqa: ANN401 - JSON
    """Return what is new or has another value, and what is gone; None for nothing."""
    if old == new:
        return None, None
    before, after = children(node, old), children(node, new)
    if before is None or after is None:
        return owned(node, new), None
    was = {name: (below, each) for name, below, each in before}
    now = {name: (below, each) for name, below, each in after}
    set_, gone = {}, {}
    for name, (below, each) in now.items():
        if name not in was:
            set_[name] = _with_self(name, owned(below, each))
            continue
        added, removed = changed(below, was[name][1], each)
        if added is not None:
            set_[name] = added
        if removed is not None:
            gone[name] = removed
    for name in was.keys() - now.keys():
        gone[name] = _with_self(name, owned(*was[name]))
    return set_ or None, gone or None


def union(one: Tree, other: Tree) -> Tree:
    """Return the fields in either set."""
    result = dict(one)
    for name, tree in other.items():
        result[name] = union(result[name], tree) if name in result else tree
    return result


def minus(one: Tree, other: Tree) -> Tree:
    """Return the fields of `one` that are not in `other`."""
    result: Tree = {}
    for name, tree in one.items():
        if name not in other:
            result[name] = tree
        elif bool(tree) != bool(other[name]):
            result[name] = tree  # one owns an empty value and the other parts of it, or the reverse
        elif tree and (rest := minus(tree, other[name])):
            result[name] = rest
    return result


def overlap(one: Tree, other: Tree) -> Tree:
    """Return the fields in both sets."""
    result: Tree = {}
    for name in one.keys() & other.keys():
        left, right = one[name], other[name]
        if not left and not right:
            result[name] = {}
        elif both := overlap(left, right):
            result[name] = both
    return result


def paths(tree: Tree, prefix: str = "") -> Iterator[str]:
    """Yield the leaves, as conflicts name them: .spec.containers[name="x"].image."""
    for name, below in tree.items():
        if name == ".":
            yield prefix
            continue
        path = prefix + _step(name)
        if below:
            yield from paths(below, path)
        else:
            yield path


def _step(name: str) -> str:
    kind, _, rest = name.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "v":
        return f"[={rest}]"
    return "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items()) + "]"
