"""YAML of the configuration, read within limits; every problem is one ConfigError with its line.

The rules equal those of cloudrec/safe_yaml.py, which the trainer cannot import because it runs without
cloudrec. A test checks both with the same texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from yaml.reader import Reader

from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST = 1 << 20
_DEEPEST = 50  # collections in collections; a configuration has two
_VALUE_COST = 40  # characters that each value counts in addition to its text; it limits the number of values
_EXPANSION = 4  # the limit on the size with aliases written out, as a multiple of the limit on the text
_INTEGER_BITS = 256
_SHOWN = 40  # characters of a value in a message
_TAG = "tag:yaml.org,2002:"
_KNOWN = {_TAG + kind for kind in ("null", "bool", "int", "float", "str", "seq", "map", "timestamp", "value")}
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def safe_yaml(text: str) -> object:
    """Return the value of a text with one YAML document; ConfigError names the problem and the line."""
    try:
        return _read(text)
    except _UnsafeError as refused:
        raise ConfigError(f"line {refused.line}: {refused}" if refused.line else str(refused)) from refused


class _UnsafeError(Exception):
    """The reason why a text is refused, and the line if it is known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


class _NodeSize(NamedTuple):
    """The size of a value, with its aliases written out."""

    cost: int
    height: int


def _read(text: str) -> object:
    if len(text) > _MOST:
        raise _UnsafeError(f"it has {len(text):,} characters; {_MOST:,} is the limit")
    if odd := Reader.NON_PRINTABLE.search(text):
        line = text.count("\n", 0, odd.start()) + 1
        raise _UnsafeError(f"not valid YAML: it holds the character {odd.group()!r}", line)
    try:
        _measure(yaml.parse(text, Loader=_LOADER), _EXPANSION * _MOST)  # noqa: TID251 - the limits themselves
        loader = _PlainLoader(text)
        try:
            root = loader.get_single_node()
            return None if root is None else loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        found = _line(error.problem_mark or error.context_mark)
        last = max(1, len(text.splitlines()))  # libyaml finds the end of a text one line below it
        raise _UnsafeError(f"not valid YAML: {problem}", min(found, last) if found else None) from error
    except yaml.YAMLError as error:
        raise _UnsafeError(f"not valid YAML: {error}") from error


def _measure(events: Iterator[yaml.Event], most: int) -> None:
    """Refuse a text that is too deep, or too large with its aliases written out.

    Reads only the parser's events: building the values first would use the memory that this check protects.
    """
    anchors: dict[str, _NodeSize] = {}
    inside: list[_NodeSize] = [
        _NodeSize(0, 0)
    ]  # of the document, and of each collection that is not closed yet
    names: list[str | None] = []  # the anchors of those collections
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            inside.append(_NodeSize(_VALUE_COST, 1))
            names.append(event.anchor)
            found = _NodeSize(0, 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            found, anchor = inside.pop(), names.pop()
            anchors |= {anchor: found} if anchor else {}
        elif isinstance(event, yaml.ScalarEvent):
            found = _NodeSize(_VALUE_COST + len(event.value), 0)
            anchors |= {event.anchor: found} if event.anchor else {}
        elif isinstance(event, yaml.AliasEvent):
            found = _aliased(event, anchors, names)
        else:
            continue
        before = inside[-1]
        inside[-1] = now = _NodeSize(before.cost + found.cost, max(before.height, found.height + 1))
        _check(now, len(names), most, _line(event.start_mark))


def _aliased(event: yaml.AliasEvent, anchors: dict[str, _NodeSize], names: list[str | None]) -> _NodeSize:
    line = _line(event.start_mark)
    if event.anchor in names:
        raise _UnsafeError(
            f"not valid YAML: the alias {event.anchor!r} is inside the value that it refers to", line
        )
    if event.anchor not in anchors:
        raise _UnsafeError(f"not valid YAML: found undefined alias {event.anchor!r}", line)
    return anchors[event.anchor]


def _check(extent: _NodeSize, depth: int, most: int, line: int | None) -> None:
    if depth + extent.height > _DEEPEST + 1:
        raise _UnsafeError(f"it is nested deeper than the limit of {_DEEPEST} levels", line)
    if extent.cost > most:
        raise _UnsafeError(f"it holds more than {most:,} characters with its aliases written out", line)


def _line(mark: Any) -> int | None:  # noqa: ANN401 - the parsers' marks have no common type
    return None if mark is None else int(mark.line) + 1


class _PlainLoader(_LOADER):
    """Builds plain values only; a value that does not fit its tag is an error with its line."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:  # noqa: FBT001, FBT002 - yaml's own signature
        kind = node.tag.removeprefix(_TAG)
        if node.tag not in _KNOWN:
            problem = f"the tag {node.tag!r} is not known here"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        problem = f"{str(node.value)[:_SHOWN]!r} is no {kind}"
        try:
            made = super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error
        if isinstance(made, int) and made.bit_length() > _INTEGER_BITS:  # Python refuses to print it
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return made


# As plain strings: a configuration has no dates, and "=" is YAML 1.1's "value" type.
for _kind in ("timestamp", "value"):
    _PlainLoader.add_constructor(_TAG + _kind, yaml.constructor.SafeConstructor.construct_yaml_str)
