"""The values of a feature schema's keys: checked, with errors that say what is wrong."""

from __future__ import annotations

import difflib
import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
_SHOWN = 8  # names in a message


class SchemaError(ValueError):
    """A schema is not valid; the text says what is wrong, the value, and the remedy."""


def closest(name: str, names: Collection[str]) -> str:
    """Return "; did you mean A or B?", or the names that there are."""
    lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), list(lower), n=3, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(lower[each] for each in close)}?"
    shown = list(names)[:_SHOWN]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"; there are {', '.join(shown)}{more}"


def keys_and_values(value: object, what: str) -> Mapping[str, Any]:
    """Return keys and values; SchemaError for anything else."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise SchemaError(f"{what} is {shown(value)}; it must be keys and values")
    return value


def items(value: object, what: str) -> Sequence[object]:
    """Return a list; SchemaError for anything else."""
    if not isinstance(value, list | tuple):
        raise SchemaError(f"{what} is {shown(value)}; it must be a list, as in [price, age]")
    return value


def refuse_unknown(given: Mapping[str, Any], names: Collection[str], what: str) -> None:
    """Raise SchemaError for a key that is not among the names."""
    for key in given:
        if key not in names:
            raise SchemaError(f"{what} has an unknown key {key!r}{closest(key, names)}")


def one_of(value: object, allowed: Sequence[object], what: str) -> None:
    """Raise SchemaError for a value that is not allowed."""
    if value not in allowed:
        raise SchemaError(f"{what} is {shown(value)}; it must be one of {', '.join(map(str, allowed))}")


def text(value: object, what: str) -> str:
    """Return a text that can be printed; SchemaError for anything else."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise SchemaError(f"{what} is {shown(value)}; it must be a text, in quotes if it looks like a number")
    return value


def plain_name(value: object, what: str) -> str:
    """Return a name of letters, digits and _; SchemaError for anything else."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise SchemaError(f"{what} is {shown(value)}; it must be of letters, digits and _")
    return value


def finite(value: object, what: str) -> float:
    """Return a finite number; SchemaError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SchemaError(f"{what} is {shown(value)}; it must be a finite number, or `error`")
    return float(value)


def whole(value: object, least: int, most: int, what: str) -> int:
    """Return a whole number within limits; SchemaError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SchemaError(f"{what} is {shown(value)}; it must be a whole number from {least} to {most:,}")
    return value


def shown(value: object) -> str:
    """Return a value as a text for messages."""
    found = repr(value)
    return found if len(found) <= 60 else found[:60] + "..."  # noqa: PLR2004 - of a message
