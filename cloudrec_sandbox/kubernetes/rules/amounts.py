"""Quantities of resources: "500m", "2Gi"."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

_PARTS = re.compile(r"([+-]?[0-9.]+)([a-zA-Z]*)([+-]?[0-9]*)")
_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


def amount(text: object) -> Decimal:
    """Return the number of a quantity; ValueError if it is not one."""
    if isinstance(text, int | float):
        return Decimal(str(text))
    found = _PARTS.fullmatch(str(text))
    factor = _factor(found[2], found[3]) if found else None
    if found is None or factor is None:
        raise ValueError(f"{text!r} is no quantity")
    try:
        return Decimal(found[1]) * factor
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is no quantity") from error


def _factor(unit: str, exponent: str) -> Decimal | None:
    if unit in ("e", "E") and exponent:
        return Decimal(f"1e{exponent}")
    if exponent:
        return None
    if unit in _BINARY:
        return Decimal(1024 ** _BINARY[unit])
    return Decimal(f"1e{_POWERS[unit]}") if unit in _POWERS else None
