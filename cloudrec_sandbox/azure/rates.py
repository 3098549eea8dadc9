"""How many calls are allowed: token buckets on virtual time, ARM's own and those of a service.

`rates` of /_control: {"arm-read": [burst, per second], ...}; "*" sets all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import throttled
from cloudrec_sandbox.azure.arm.registry import setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.azure.arm.target import Target
    from cloudrec_sandbox.core.world import World

# Burst, and tokens added in a virtual second. AKS limits by cluster, the others by subscription.
RATES: dict[str, tuple[float, float]] = {
    "arm-read": (250, 25),
    "arm-write": (200, 10),
    "arm-delete": (200, 10),
    "aks-put": (20, 1 / 60),
    "aks-get": (60, 1),
}
_AKS = ("microsoft.containerservice/managedclusters", "microsoft.containerservice/managedclusters/agentpools")
_METHODS = {"PUT": "arm-write", "PATCH": "arm-write", "POST": "arm-write", "DELETE": "arm-delete"}


@dataclass
class Buckets:
    """What is left in each bucket, at which moment; rates that were set."""

    left: dict[str, tuple[float, float]] = field(default_factory=dict)
    rates: dict[str, tuple[float, float]] = field(default_factory=dict)


def check(world: World, target: Target) -> None:
    """Count a call; refuse it if there were too many."""
    _take(world, target, _METHODS.get(target.method, "arm-read"), target.path.subscription)
    if target.path.type.lower() in _AKS and target.path.is_item:
        if target.method == "PUT":
            _take(world, target, "aks-put", target.path.key)
        elif target.method == "GET":
            _take(world, target, "aks-get", target.path.key)


def _take(world: World, target: Target, rate: str, owner: str) -> None:
    buckets = world.state(Buckets)
    burst, refill = buckets.rates.get(rate, RATES[rate])
    key = f"{rate} {owner}"
    left, since = buckets.left.get(key, (burst, world.now()))
    left = min(burst, left + (world.now() - since) * refill)
    if left < 1:
        buckets.left[key] = (left, world.now())
        raise throttled(target.service, retry_after=max(1, math.ceil((1 - left) / refill)))
    buckets.left[key] = (left - 1, world.now())


def _write(world: World, wishes: Mapping[str, Sequence[float]]) -> None:
    for name, (burst, refill) in wishes.items():
        if name not in RATES and name != "*":
            raise ValueError(f"unknown rate {name!r}; there are: {', '.join(RATES)}")
        for each in RATES if name == "*" else [name]:
            world.state(Buckets).rates[each] = (float(burst), float(refill))
    world.state(Buckets).left.clear()


def _read(world: World) -> dict[str, Any]:
    return {**RATES, **world.state(Buckets).rates}


setting("rates", read=_read, write=_write)
