"""Kubernetes' quantities as numbers: 8, 5120Mi, 100m."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT = re.compile(r"([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?")
_UNITS: Mapping[str, float] = MappingProxyType(
    {"n": 1e-9, "u": 1e-6, "m": 1e-3}
    | {unit: 1000.0 ** (power + 1) for power, unit in enumerate("kMGTPE")}
    | {f"{unit}i": 1024.0 ** (power + 1) for power, unit in enumerate("KMGTPE")}
)


def amount(text: object) -> float:
    """Return a quantity as a number; 0 for a text that is none."""
    found = _TEXT.fullmatch(str(text).strip())
    return float(found[1]) * _UNITS.get(found[2], 1.0) if found else 0.0
