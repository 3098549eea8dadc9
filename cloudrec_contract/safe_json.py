"""JSON of untrusted origin, parsed within limits; any problem is one error.

Files of a run, records of a cluster, objects of a bucket and answers of a cloud may be damaged, or written by
anyone who may write there. Python's parser accepts NaN, Infinity, 1e400 and half of a surrogate pair, which
later fail in a sum, a file or a terminal, and it raises RecursionError for deep nesting. All of these are
UnsafeJsonError here, which is a ValueError.

`record_of` makes a dataclass of an object. A dataclass accepts any value for any field, so a damaged record
would fail later, where its values are used; `record_of` checks each value against the type of its field. That
type may be str, bool, int, float, None, another dataclass, a union of these, a tuple or a Mapping.

RFC 8259, section 9, lets a parser limit the size of texts, the depth of nesting, and the range of numbers.
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_BYTES: Final = 64 << 20  # a list of a large cluster's pods has some megabytes
DEEPEST: Final = 100  # levels; the schema of a custom resource has the deepest nesting that is read, below 70
_DIGITS = 78  # of the largest integer of 256 bits: the state of a random generator has 128
_SHOWN = 40  # characters of a number in a message
_SHOWN_VALUE = 60  # characters of a value in a message
_MOST: Final = 1e18  # beyond every time, size and amount of money in a record
_NAMES = {"Mapping": Mapping, "Sequence": Sequence, "Any": Any}  # modules import these for type checkers only
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

T = TypeVar("T")
Numbers = Literal["finite", "unknown", "any"]


class UnsafeJsonError(ValueError):
    """A text is not JSON, or is outside the limits; the message has the reason."""


class RecordError(ValueError):
    """A record does not have the fields of its type; the message names the field, the value and the type."""


def safe_json(text: str | bytes, *, most: int = MOST_BYTES, numbers: Numbers = "finite") -> Any:  # noqa: ANN401 - JSON
    """Return the value of a JSON text.

    Args:
        text: the text; bytes are UTF-8.
        most: the longest text, in characters or bytes.
        numbers: what becomes of a number that is not finite or has more than 78 digits: "finite" refuses the
            text, "unknown" reads the number as None, and "any" accepts it as far as Python does.

    Raises:
        UnsafeJsonError: the text is not JSON, is longer, or is nested deeper than 100 levels; or it has such
            a number, or half of a surrogate pair.
    """
    if len(text) > most:
        raise UnsafeJsonError(f"it has {len(text):,} characters; {most:,} is the limit")
    hook = _FLOATS[numbers]
    try:
        whole = text if isinstance(text, str) else str(text, "utf-8-sig")
        value = json.loads(whole, parse_int=_INTEGERS[numbers], parse_float=hook, parse_constant=hook)  # noqa: TID251 - the limits themselves
        _check_text(whole, value)
    except RecursionError:
        raise UnsafeJsonError(f"it is nested deeper than the limit of {DEEPEST} levels") from None
    except UnsafeJsonError:
        raise
    except ValueError as error:  # also UnicodeDecodeError and UnicodeEncodeError
        raise UnsafeJsonError(f"it is not JSON: {error}") from error
    if whole.count("[") + whole.count("{") > DEEPEST:
        _check_depth(value)
    return value


def safe_object(text: str | bytes, *, most: int = MOST_BYTES, numbers: Numbers = "finite") -> dict[str, Any]:
    """Return the object of a JSON text; UnsafeJsonError as in `safe_json`, or if it is another value."""
    value = safe_json(text, most=most, numbers=numbers)
    if not isinstance(value, dict):
        raise UnsafeJsonError(f"it holds a {type(value).__name__}, not an object")
    return value


def record_of(kind: type[T], document: object, *, where: str = "") -> T:
    """Return a dataclass with the values of a JSON object.

    Args:
        kind: the dataclass.
        document: the object; lists become tuples where a field is a tuple.
        where: the field that holds the record, for messages.

    Raises:
        RecordError: it is no object, a field is missing, unknown or of another type, or a number is not
            finite or beyond 1e18.
    """
    name = where or kind.__name__
    if not isinstance(document, Mapping):
        raise RecordError(f"{name} is {_shown(document)}, not an object")
    hints = _hints(cast("Any", kind))
    if unknown := sorted(map(str, document.keys() - hints.keys())):
        raise RecordError(f"{name} has the unknown field {_shown(unknown[0])}")
    if missing := sorted(_required(cast("Any", kind)) - document.keys()):
        raise RecordError(f"{name} has no field {missing[0]}")
    return kind(**{key: _fitting(value, hints[key], f"{name}.{key}") for key, value in document.items()})


def aware_time(text: str) -> datetime:
    """Return a time of ISO 8601 with its offset from UTC; ValueError for anything else.

    A time without an offset cannot be compared with one that has it.
    """
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"the time {_shown(text)} has no offset from UTC")
    return found


def _check_depth(value: object) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        level = [
            each
            for held in level
            for each in (held.values() if isinstance(held, dict) else held)
            if isinstance(each, dict | list)
        ]
        if not level:
            return
    raise UnsafeJsonError(f"it is nested deeper than the limit of {DEEPEST} levels")


def _check_text(text: str, value: object) -> None:
    """Raise ValueError if a string has half of a surrogate pair, which UTF-8 cannot encode."""
    if not text.isascii():
        text.encode()
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise UnsafeJsonError(f"the number {digits[:_SHOWN]} is not finite")
    return number


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise UnsafeJsonError(f"it has a number of {len(digits):,} digits; {_DIGITS} is the limit")
    return int(digits)


def _known(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _known_whole(digits: str) -> int | None:
    return int(digits) if len(digits) <= _DIGITS else None


_FLOATS: Final[Mapping[Numbers, Callable[[str], float | None]]] = {
    "finite": _finite,
    "unknown": _known,
    "any": float,
}
_INTEGERS: Final[Mapping[Numbers, Callable[[str], int | None]]] = {
    "finite": _whole,
    "unknown": _known_whole,
    "any": int,
}


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    found = get_type_hints(kind, localns=_NAMES)
    return {each.name: found[each.name] for each in fields(kind) if each.init}


@cache
def _required(kind: type) -> frozenset[str]:
    return frozenset(
        each.name
        for each in fields(kind)
        if each.init and each.default is MISSING and each.default_factory is MISSING
    )


def _fitting(value: object, hint: Any, where: str) -> Any:  # noqa: ANN401 - any type of a field
    """Return a value of a field's type; RecordError if it is of another type."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return _one_of(value, parts, where)
    if origin in {Mapping, dict}:
        return _mapping(value, parts, where)
    if origin in {tuple, Sequence}:
        return _tuple(value, parts, where)
    if is_dataclass(hint) and isinstance(hint, type):
        return record_of(hint, value, where=where)
    return _plain(value, hint, where)


def _plain(value: object, hint: Any, where: str) -> object:  # noqa: ANN401 - any type of a field
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_sound = math.isfinite(value) and abs(value) <= _MOST
        if is_sound and hint is float:
            return float(value)
        if is_sound and hint is int and value == int(value):
            return int(value)
    elif hint in {str, bool, types.NoneType} and type(value) is hint:
        return value
    if hint is Any:
        return value
    raise _wrong(value, hint, where)


def _one_of(value: object, hints: Sequence[Any], where: str) -> Any:  # noqa: ANN401 - any type of a field
    if value is None and types.NoneType in hints:
        return None
    others = [hint for hint in hints if hint is not types.NoneType]
    for hint in others[:-1]:
        try:
            return _fitting(value, hint, where)
        except RecordError:
            continue
    return _fitting(value, others[-1], where)


def _mapping(value: object, parts: Sequence[Any], where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, "an object", where)
    return {str(key): _fitting(each, parts[1], f"{where}[{_shown(key)}]") for key, each in value.items()}


def _tuple(value: object, parts: Sequence[Any], where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _wrong(value, "a list", where)
    if len(parts) == 1 or parts[1:] == (...,):
        return tuple(_fitting(each, parts[0], f"{where}[{n}]") for n, each in enumerate(value))
    if len(value) != len(parts):
        raise _wrong(value, f"a list of {len(parts)}", where)
    return tuple(
        _fitting(each, hint, f"{where}[{n}]") for n, (each, hint) in enumerate(zip(value, parts, strict=True))
    )


def _wrong(value: object, wanted: object, where: str) -> RecordError:
    name = wanted.__name__ if isinstance(wanted, type) else str(wanted)
    return RecordError(f"{where} is {_shown(value)}, not {_TYPES.get(name, name)}")


_TYPES = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "NoneType": "null",
}


def _shown(value: object) -> str:
    return _short(ascii(value))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}..."
