"""Numbers as people read them. An unknown value is a dash, and an unknown price the word."""

from __future__ import annotations

from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_SI = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_SMALL, _CENT = 1e-3, 0.01
NONE = "\N{EN DASH}"
UNKNOWN = "unknown"


def duration(seconds: float | None) -> str:
    """Return seconds as readable text: 42.0 s, 3 min 05 s, 2 h 10 min, 3 d 04 h."""
    if seconds is None:
        return NONE
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{int(seconds) // _MINUTE} min {int(seconds) % _MINUTE:02d} s"
    if seconds < _DAY:
        return f"{int(seconds) // _HOUR} h {int(seconds) % _HOUR // _MINUTE:02d} min"
    return f"{int(seconds) // _DAY} d {int(seconds) % _DAY // _HOUR:02d} h"


def short(value: float | None) -> str:
    """Return a number in few characters: 1.25M, 0.7431, 3.2e-05."""
    if value is None:
        return NONE
    size = abs(value)
    for factor, letter in _SI:
        if size >= factor:
            return f"{value / factor:.3g}{letter}"
    if value and size < _SMALL:
        return f"{value:.2g}"
    return f"{value:.4g}"


def whole(value: float | None) -> str:
    """Return a count with separators: 12,345."""
    return NONE if value is None else f"{value:,.0f}"


def percent(share: float | None) -> str:
    """Return a share of 1 as a percentage: 97 %, or 99.5 % near the ends."""
    if share is None:
        return NONE
    near_an_end = 0 < share < _CENT or 1 - _CENT < share < 1
    return f"{share * 100:.1f} %" if near_an_end else f"{share * 100:.0f} %"


def size(count: float | None) -> str:
    """Return bytes as readable text: 9.4 MB."""
    if count is None:
        return NONE
    for factor, unit in _BYTES:
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"


def usd(value: float | None) -> str:
    """Return a sum for people: $12.30; `unknown` if it is not known, and never $0."""
    if value is None:
        return UNKNOWN
    return f"${value:,.4f}" if 0 < value < _CENT else f"${value:,.2f}"


def clock(moment: float | None) -> str:
    """Return a time in UTC; a dash if there is none."""
    try:
        return NONE if moment is None else f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return NONE


def ago(moment: float | None, now: float) -> str:
    """Return how long ago a time was, in one unit: 5 min ago; a dash if there is none."""
    if moment is None:
        return NONE
    passed = max(now - moment, 0.0)
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if passed >= unit:
            return f"{passed // unit:.0f} {name} ago"
    return "just now" if passed < 1 else f"{passed:.0f} s ago"
