"""Compute's quotas: limits by region, or of the whole project; each module counts what it uses.

`quotas` of /_control: {"us-central1/NVIDIA_A100_GPUS": 16, "global/NETWORKS": 5}; null restores the usual
limit. H100s on demand have no metric among these: they count by family, in Cloud Quotas, as
"us-central1/GPUS_PER_GPU_FAMILY/NVIDIA_H100".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec_sandbox.gcp.api.registry import setting
from cloudrec_sandbox.gcp.resources.places import REGIONS
from cloudrec_sandbox.gcp.services.compute.capacity.catalogue import (
    A100,
    A100_80,
    B200,
    H100,
    H100_MEGA,
    H200,
    L4,
    T4,
    V100,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cloudrec_sandbox.gcp.api.world import World

    Usage = Callable[[World, str], Mapping[str, float]]

GLOBAL = "global"
FAMILY = "GPUS_PER_GPU_FAMILY"
FAMILIES = {
    H100: "NVIDIA_H100",
    H100_MEGA: "NVIDIA_H100_MEGA",
    H200: "NVIDIA_H200",
    B200: "NVIDIA_B200",
}
GPUS = {
    A100: "NVIDIA_A100_GPUS",
    A100_80: "NVIDIA_A100_80GB_GPUS",
    L4: "NVIDIA_L4_GPUS",
    T4: "NVIDIA_T4_GPUS",
    V100: "NVIDIA_V100_GPUS",
}
SPOT_GPUS = {
    **{name: f"PREEMPTIBLE_{metric}" for name, metric in GPUS.items()},
    H100: "PREEMPTIBLE_NVIDIA_H100_GPUS",
    H100_MEGA: "PREEMPTIBLE_NVIDIA_H100_MEGA_GPUS",
    H200: "PREEMPTIBLE_NVIDIA_H200_GPUS",
    B200: "PREEMPTIBLE_NVIDIA_B200_GPUS",
}
CPUS = {
    "a2": "A2_CPUS",
    "a3": "A3_CPUS",
    "a4": "A4_CPUS",
    "c3": "C3_CPUS",
    "e2": "CPUS",
    "g2": "CPUS",
    "n1": "CPUS",
    "n2": "N2_CPUS",
    "n2d": "N2D_CPUS",
}

_REGIONAL: dict[str, float] = {
    **dict.fromkeys(CPUS.values(), 2400.0),
    "PREEMPTIBLE_CPUS": 0.0,  # 0 means that spot machines count for CPUS
    **dict.fromkeys(GPUS.values(), 64.0),
    **dict.fromkeys(SPOT_GPUS.values(), 64.0),
    **{f"{FAMILY}/{family}": 64.0 for family in FAMILIES.values()},
    "DISKS_TOTAL_GB": 102400.0,
    "SSD_TOTAL_GB": 102400.0,
    "HDB_TOTAL_GB": 102400.0,
    "LOCAL_SSD_TOTAL_GB": 204800.0,
    "PREEMPTIBLE_LOCAL_SSD_GB": 204800.0,
    "INSTANCES": 6000.0,
    "INSTANCE_GROUPS": 500.0,
    "INSTANCE_GROUP_MANAGERS": 500.0,
    "IN_USE_ADDRESSES": 69.0,
    "STATIC_ADDRESSES": 21.0,
    "INTERNAL_ADDRESSES": 5000.0,
    "NETWORK_ENDPOINT_GROUPS": 100.0,
}
_PROJECT: dict[str, float] = {
    "CPUS_ALL_REGIONS": 5000.0,
    "GPUS_ALL_REGIONS": 0.0,  # until it is requested
    "NETWORKS": 15.0,
    "SUBNETWORKS": 275.0,
    "FIREWALLS": 500.0,
    "ROUTERS": 20.0,
    "ROUTES": 250.0,
    "HEALTH_CHECKS": 75.0,
    "FORWARDING_RULES": 150.0,
    "TARGET_POOLS": 150.0,
    "BACKEND_SERVICES": 75.0,
    "URL_MAPS": 30.0,
    "TARGET_HTTP_PROXIES": 30.0,
    "TARGET_HTTPS_PROXIES": 30.0,
    "INSTANCE_TEMPLATES": 500.0,
    "STATIC_ADDRESSES": 21.0,
    "GLOBAL_INTERNAL_ADDRESSES": 5000.0,
    "CONCURRENT_OPERATIONS": 300.0,
}


@dataclass
class Limits:
    """The limits that were changed."""

    changed: dict[str, float] = field(default_factory=dict)


_usages: list[Usage] = []


def usage(function: Usage) -> Usage:
    """Register a function that counts what is used in a place: it gets (world, region or 'global')."""
    _usages.append(function)
    return function


def limit(world: World, place: str, metric: str) -> float:
    """Return how much of a metric may be used in a region, or with place 'global' in the project."""
    usual = _PROJECT if place == GLOBAL else _REGIONAL
    return world.state(Limits).changed.get(f"{place}/{metric}", usual[metric])


def used(world: World, place: str) -> dict[str, float]:
    """Return what is used in a place, by metric."""
    total: dict[str, float] = {}
    for usage_of in _usages:
        for metric, amount in usage_of(world, place).items():
            total[metric] = total.get(metric, 0.0) + amount
    return total


def exceeded(world: World, place: str, wanted: Mapping[str, float]) -> str:
    """Return the error for using that much more of the metrics; '' if it is allowed."""
    known = used(world, place)
    for metric, amount in wanted.items():
        if amount > 0 and known.get(metric, 0.0) + amount > limit(world, place, metric):
            return _text(world, place, metric)
    return ""


def is_regional(metric: str) -> bool:
    """Return whether every region has its own limit."""
    return metric in _REGIONAL


def over(world: World, region: str, metric: str) -> str:
    """Return the error if more is used than the limit; a region's own limit comes before the project's."""
    place = region if region and is_regional(metric) else GLOBAL
    if used(world, place).get(metric, 0.0) <= limit(world, place, metric):
        return ""
    return _text(world, place, metric)


def _text(world: World, place: str, metric: str) -> str:
    where = "globally" if place == GLOBAL else f"in region {place}"
    return f"Quota '{metric.partition('/')[0]}' exceeded.  Limit: {limit(world, place, metric)} {where}."


def rows(world: World, place: str) -> Iterator[tuple[str, float, float]]:
    """Yield a place's metrics with limit and usage; without those by family, which are in Cloud Quotas."""
    known = used(world, place)
    for metric in _PROJECT if place == GLOBAL else _REGIONAL:
        if "/" not in metric and metric != "CONCURRENT_OPERATIONS":
            yield metric, limit(world, place, metric), known.get(metric, 0.0)


def _write(world: World, wishes: Mapping[str, float | None]) -> None:
    for key in wishes:
        place, _, metric = key.partition("/")
        known: Mapping[str, float] = _PROJECT if place == GLOBAL else _REGIONAL
        if (place != GLOBAL and place not in REGIONS) or metric not in known:
            raise ValueError(f"quota {key!r} is not global/METRIC or REGION/METRIC of a known metric")
    changed = world.state(Limits).changed
    for key, value in wishes.items():
        if value is None:
            changed.pop(key, None)
        else:
            changed[key] = float(value)


setting("quotas", read=lambda world: world.state(Limits).changed, write=_write)
