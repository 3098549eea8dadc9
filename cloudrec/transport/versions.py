"""Compares a library's version with the bounds of a setting."""

from __future__ import annotations

import operator
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = MappingProxyType(
    {">=": operator.ge, "<=": operator.le, "<": operator.lt, ">": operator.gt, "==": operator.eq}
)
_PART = re.compile(r"(>=|<=|==|<|>)([0-9]+(?:\.[0-9]+)*)")


def fits(version: str, wanted: str) -> bool:
    """Return whether a version is within bounds like `>=2.9,<3`.

    Args:
        version: such as 2.13.0 or 2.13.0+cu128; empty for an unknown one, which counts as newer than all.
        wanted: bounds, separated by commas.

    Raises:
        ValueError: a bound is not valid.
    """
    numbers = _numbers(version)
    for part in wanted.split(","):
        bound = _PART.fullmatch(part.strip())
        if bound is None:
            raise ValueError(f"{part!r} is no bound of a version, such as >=2.9")
        if not _COMPARED[bound[1]](numbers, _numbers(bound[2])):
            return False
    return True


def _numbers(version: str) -> tuple[float, ...]:
    if not version:
        return (float("inf"),)
    found = re.match(r"v?([0-9]+(?:\.[0-9]+)*)", version)
    parts = [float(part) for part in found[1].split(".")] if found else [float("inf")]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()  # 2.9.0 is 2.9
    return tuple(parts)
