"""JSON of untrusted origin, parsed within limits; any problem is one error.

Files of a run, records of a cluster, objects of a bucket and answers of a cloud may be damaged, or written by
anyone who may write there. Python's parser accepts NaN, Infinity, 1e400 and half of a surrogate pair, which
later fail in a sum, a file or a terminal, and it raises RecursionError for deep nesting. All of these are
UnsafeJsonError here, which is a ValueError.

RFC 8259, section 9, lets a parser limit the size of texts, the depth of nesting, and the range of numbers.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST_BYTES: Final = 64 << 20  # a list of a large cluster's pods has some megabytes
DEEPEST: Final = 100  # levels; the schema of a custom resource has the deepest nesting that is read, below 70
_DIGITS = 78  # of the largest integer of 256 bits: the state of a random generator has 128
_SHOWN = 40  # characters of a number in a message
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

Numbers = Literal["finite", "unknown", "any"]


class UnsafeJsonError(ValueError):
    """A text is not JSON, or is outside the limits; the message has the reason."""


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
