"""YAML of untrusted origin, parsed within limits; any problem is one error with its line.

PyYAML's safe loader runs no code, but it has no other limits: a few lines of aliases expand to gigabytes,
nested brackets exhaust the stack, and a value that does not match its tag raises any exception of Python's
parsers. This module first counts the parser's events, before it builds any value. A date stays a string, as
in YAML 1.2, because no setting is a date.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from yaml.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cloudrec.errors import CloudrecError

MOST_BYTES = 1 << 20
KUBECONFIG_BYTES = 8 << 20  # enough for hundreds of clusters with their certificates
_DEEPEST = 50  # levels of nested collections; a spec or a kubeconfig has fewer than ten
_VALUE_COST = 40  # characters that a value counts for, besides its own: this limits the number of values
_EXPANSION = 4  # with its aliases written out, a text may be so many times the size limit
_INTEGER_BITS = 256  # Python refuses to print integers of thousands of digits
_SHOWN = 40  # characters of a value in a message
_TAG = "tag:yaml.org,2002:"
_KNOWN = {_TAG + kind for kind in ("null", "bool", "int", "float", "str", "seq", "map", "timestamp", "value")}
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, kw_only=True)
class Yaml:
    """A parsed text.

    Attributes:
        value: its content as strings, numbers, booleans, None, lists and dictionaries.
        root: its content as nodes, which have line numbers; None for an empty text.
    """

    value: object
    root: yaml.Node | None


def safe_yaml(
    text: str, *, where: str, error: type[CloudrecError], remedy: str | None = None, most: int = MOST_BYTES
) -> Yaml:
    """Parse a text with one YAML document.

    Args:
        text: the text.
        where: the text's origin, usually a file's name; the error's message begins with it.
        error: the class of the error.
        remedy: the error's remedy.
        most: the longest text in characters; with its aliases written out, it may be four times as long.

    Raises:
        CloudrecError: of the given class; the text is not YAML, is too large, or is nested too deep.
    """
    try:
        return _read(text, most)
    except _RefusedError as refused:
        line = f" line {refused.line}" if refused.line else ""
        raise error(f"{where}{line}: {refused.reason}", remedy=remedy) from refused


def limited_text(path: Path, most: int = MOST_BYTES) -> str:
    """Return the text of a file of at most `most` bytes; it reads no more, even from a device.

    Raises:
        OSError: the file cannot be read, or is larger.
        UnicodeDecodeError: the file is not UTF-8.
    """
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data.decode("utf-8-sig")


class _RefusedError(Exception):
    """The reason why a text is rejected.

    Args:
        reason: the reason.
        line: its line, counted from 1; None if unknown.
    """

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class _Extent(NamedTuple):
    """The size of a value with its aliases written out: its cost in characters, and its nested levels."""

    cost: int
    height: int


def _read(text: str, most: int) -> Yaml:
    if len(text) > most:
        raise _RefusedError(f"it has {len(text):,} characters; {most:,} is the limit")
    if odd := Reader.NON_PRINTABLE.search(text):
        line = text.count("\n", 0, odd.start()) + 1
        raise _RefusedError(f"not valid YAML: it holds the character {odd.group()!r}", line)
    try:
        _measure(yaml.parse(text, Loader=_LOADER), _EXPANSION * most)  # noqa: TID251 - the limits themselves
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            return Yaml(value=None if root is None else loader.construct_document(root), root=root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        found = _line(error.problem_mark or error.context_mark)
        last = max(1, len(text.splitlines()))  # libyaml finds the end of a text one line below it
        raise _RefusedError(f"not valid YAML: {problem}", min(found, last) if found else None) from error
    except yaml.YAMLError as error:
        raise _RefusedError(f"not valid YAML: {error}") from error


def _measure(events: Iterator[yaml.Event], most: int) -> None:
    """Raise _RefusedError if a text is nested too deep, or too large with its aliases written out."""
    anchors: dict[str, _Extent] = {}
    inside: list[_Extent] = [_Extent(0, 0)]  # of the document, and of each collection that is not closed yet
    names: list[str | None] = []  # the anchors of the open collections
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            inside.append(_Extent(_VALUE_COST, 1))
            names.append(event.anchor)
            found = _Extent(0, 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            found, anchor = inside.pop(), names.pop()
            anchors |= {anchor: found} if anchor else {}
        elif isinstance(event, yaml.ScalarEvent):
            found = _Extent(_VALUE_COST + len(event.value), 0)
            anchors |= {event.anchor: found} if event.anchor else {}
        elif isinstance(event, yaml.AliasEvent):
            found = _meant(event, anchors, names)
        else:
            continue
        before = inside[-1]
        inside[-1] = now = _Extent(before.cost + found.cost, max(before.height, found.height + 1))
        _check(now, len(names), most, _line(event.start_mark))


def _meant(event: yaml.AliasEvent, anchors: dict[str, _Extent], names: list[str | None]) -> _Extent:
    line = _line(event.start_mark)
    if event.anchor in names:
        raise _RefusedError(
            f"not valid YAML: the alias {event.anchor!r} is inside the value that it refers to", line
        )
    if event.anchor not in anchors:
        raise _RefusedError(f"not valid YAML: found undefined alias {event.anchor!r}", line)
    return anchors[event.anchor]


def _check(extent: _Extent, depth: int, most: int, line: int | None) -> None:
    if depth + extent.height > _DEEPEST + 1:
        raise _RefusedError(f"it is nested deeper than the limit of {_DEEPEST} levels", line)
    if extent.cost > most:
        raise _RefusedError(f"it holds more than {most:,} characters with its aliases written out", line)


def _line(mark: Any) -> int | None:  # noqa: ANN401 - the parsers' marks have no common type
    return None if mark is None else int(mark.line) + 1


class _Loader(_LOADER):  # type: ignore[misc] # one of the two that are there
    """A loader that builds plain values only; a value that does not match its tag is an error with a line."""

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


for _kind in ("timestamp", "value"):
    _Loader.add_constructor(_TAG + _kind, yaml.constructor.SafeConstructor.construct_yaml_str)
