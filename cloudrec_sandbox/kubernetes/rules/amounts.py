"""Quantities of resources: "500m", "2Gi"; the class of a pod by its requests and limits."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def quality(spec: Mapping[str, Any]) -> str:
    """Return the QoS class, by which the kubelet chooses pods to end: Guaranteed, Burstable or BestEffort.

    Only cores and memory count (Kubernetes' documentation, "Pod Quality of Service Classes"): a pod that
    states only its GPUs is BestEffort.
    """
    each = [
        container.get("resources") or {}
        for field in ("initContainers", "containers")
        for container in spec.get(field) or ()
    ]
    stated = [{*(one.get("requests") or {}), *(one.get("limits") or {})} for one in each]
    if not any(names & {"cpu", "memory"} for names in stated):
        return "BestEffort"
    for one in each:
        limits, requests = one.get("limits") or {}, one.get("requests") or {}
        for name in ("cpu", "memory"):
            if name not in limits or _number(requests.get(name)) != _number(limits[name]):
                return "Burstable"
    return "Guaranteed"


def _number(value: object) -> object:
    try:
        return amount(value)
    except ValueError:
        return None
