"""Quantities as Kubernetes writes them: "500m", "1Gi"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS = {
    "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip


def amount(quantity: object) -> float:
    """Return a quantity as a number: cores, bytes, pieces."""
    text = str(quantity)
    for length in (2, 1):
        if text[-length:] in _UNITS:
            return float(text[:-length]) * _UNITS[text[-length:]]
    return float(text)


def requests(pod: Mapping[str, Any]) -> dict[str, float]:
    """Return a pod's requests: of its containers and sidecars together, or of its largest init container."""
    spec = pod["spec"]
    total: dict[str, float] = {}
    most: dict[str, float] = {}
    for container in spec.get("initContainers") or ():
        asked = requested(container)
        if container.get("restartPolicy") == "Always":
            _add(total, asked)
            asked = {}
        for name, value in {**total, **_sum(total, asked)}.items():
            most[name] = max(most.get(name, 0.0), value)
    for container in spec["containers"]:
        _add(total, requested(container))
    found = {name: max(total.get(name, 0.0), most.get(name, 0.0)) for name in {**total, **most}}
    _add(found, {name: amount(value) for name, value in (spec.get("overhead") or {}).items()})
    return found


def requested(container: Mapping[str, Any]) -> dict[str, float]:
    """Return a container's requests; a limit without a request counts as the request."""
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount(value) for name, value in asked.items()}


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0.0) + value


def _sum(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    total = dict(one)
    _add(total, other)
    return total
