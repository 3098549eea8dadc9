"""Nodes that are to be removed, and pods that may not be evicted from them.

`blocked_drains` of /_control: names of pools whose pods' disruption budgets allow no eviction: a deletion or
an upgrade of such a pool ends in UnsatisfiablePDB, unless the call has ignore-pod-disruption-budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.registry import setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.azure.arm.operations import Operation
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World


@dataclass
class Budgets:
    """Pools that cannot be drained."""

    blocked: list[str] = field(default_factory=list)


def check(world: World, pool: Resource, operation: Operation) -> None:
    """Refuse an operation that would have to evict pods that may not be evicted."""
    if pool.name in world.state(Budgets).blocked and not operation.facts.get("ignore_budgets"):
        raise ArmError(
            "UnsatisfiablePDB",
            f"Drain of agent pool {pool.name} failed: 1 error occurred: PDB default/blocked has "
            f"maxUnavailable == 0 "
            "can't proceed with the drain operation. See https://aka.ms/aks/debugdrainfailures.",
        )


def _write(world: World, names: Sequence[str]) -> None:
    world.state(Budgets).blocked = list(names)


setting("blocked_drains", read=lambda world: list(world.state(Budgets).blocked), write=_write)
