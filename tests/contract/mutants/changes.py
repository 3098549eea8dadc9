"""One change at a time to a request: a field is removed, mistyped, out of range or has another value."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Path = tuple[str | int, ...]
HUGE = 2**31 - 1  # the largest number that each vendor's integers can carry
UNKNOWN = "cloudrec-none"  # a word that is no value, name or id of any vendor
_WHOLE_LIST = 3  # a longer list has the same entry many times: the first two and the last stand for all


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A request with one change.

    Attributes:
        path: the field, with the numbers of list entries.
        change: what was done: remove, type, unknown, other, plus-one, minus-one, negative, huge, flip,
            duplicate, empty.
        value: the new value; None for a removal.
        document: the whole request with the change.
    """

    path: Path
    change: str
    value: object
    document: Any

    @property
    def field(self) -> str:
        """The path without numbers, as the tables of rules name it: a.b[].c."""
        text = "".join("[]" if isinstance(part, int) else f".{part}" for part in self.path)
        return text.removeprefix(".")

    def __str__(self) -> str:
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return f"{text.removeprefix('.')} {self.change}" + (
            f" {self.value!r}" if self.change in {"other", "unknown"} else ""
        )


def at(document: Any, path: Path) -> Any:
    """Return the value of a field; None if there is none."""
    for part in path:
        try:
            document = document[part]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def mutants(
    document: Any,
    *,
    alternatives: Mapping[str, Sequence[object]],
    is_text: bool = False,
    is_typed: bool = False,
    keep: Sequence[str] = (),
) -> Iterator[Mutant]:
    """Yield the request with each change.

    Args:
        document: the request, as JSON.
        alternatives: other values to try, by the field's pattern (a regular expression) without numbers.
        is_text: whether the protocol has text alone, so that numbers and truth values are written as text.
        is_typed: whether the protocol carries no value of a wrong type.
        keep: patterns of fields that are not changed, since they name the call and not the machine.
    """
    for path, value in _fields(document, ()):
        shown = Mutant(path=path, change="", value=None, document=None).field
        if any(re.fullmatch(pattern, shown) for pattern in keep):
            continue
        for change, new in _changes(value, is_text=is_text, is_typed=is_typed):
            yield _mutant(document, path, change, new)
        for pattern, others in alternatives.items():
            if re.fullmatch(pattern, shown):
                yield from (
                    _mutant(document, path, "other", other) for other in others if str(other) != str(value)
                )


def _mutant(document: Any, path: Path, change: str, new: object) -> Mutant:
    changed = deepcopy(document)
    parent = at(changed, path[:-1])
    if change == "remove":
        del parent[path[-1]]
    elif change == "duplicate":
        parent[path[-1]].append(deepcopy(parent[path[-1]][-1]))
    else:
        parent[path[-1]] = new
    return Mutant(path=path, change=change, value=new, document=changed)


def _fields(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    entries: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list):
        entries = list(enumerate(value))
        if len(entries) > _WHOLE_LIST:
            entries = [*entries[:2], entries[-1]]
    for key, each in entries:
        yield (*path, key), each
        yield from _fields(each, (*path, key))


def _of_list(value: list[Any], *, is_text: bool, is_typed: bool) -> Iterator[tuple[str, object]]:
    if value:
        yield "duplicate", None
        if not is_text and not is_typed:  # the other protocols write an empty list as they write none
            yield "empty", []


def _changes(value: Any, *, is_text: bool, is_typed: bool) -> Iterator[tuple[str, object]]:
    yield "remove", None
    number, truth = _number(value, is_text=is_text), _truth(value, is_text=is_text)

    def written(new: object) -> object:
        return str(new).lower() if is_text else new

    if isinstance(value, dict | list):
        if not is_typed:
            yield "type", UNKNOWN
        if isinstance(value, list):
            yield from _of_list(value, is_text=is_text, is_typed=is_typed)
        return
    if truth is not None:
        yield "flip", written(not truth)
    elif number is not None:
        for change, new in (
            ("plus-one", number + 1),
            ("minus-one", number - 1),
            ("negative", -1),
            ("huge", HUGE),
        ):
            if change in {"plus-one", "minus-one"} or new not in (number + 1, number - 1):
                yield change, written(new)
    else:
        yield "unknown", UNKNOWN
    if is_typed or (is_text and number is None and truth is None):
        return
    yield "type", UNKNOWN if not isinstance(value, str) or is_text else {"not": "text"}


def _number(value: Any, *, is_text: bool) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if is_text and isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value) else None


def _truth(value: Any, *, is_text: bool) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value) if is_text and isinstance(value, str) else None
