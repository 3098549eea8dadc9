"""The prices by which the guard meters a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.cost import total
from cloudrec.keeper.meter import Tariff

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec.engine.graph import Resource


def tariffs_of(resources: Iterable[Resource]) -> tuple[Tariff, ...]:
    """Return the price of a node of each pool, and of everything else together.

    Args:
        resources: the cluster's resources; of a choice, each candidate is a pool.
    """
    pools: list[Tariff] = []
    others: list[float | None] = []
    for resource in resources:
        if resource.is_shared:
            continue
        choices = resource.candidates or (resource,)
        pools += [_of_pool(one) for one in choices if one.pool]
        if not any(one.pool and one.nodes for one in choices):
            others.append(resource.hourly_usd)
    return (*pools, Tariff(pool="", hourly_usd=total(*others)))


def _of_pool(resource: Resource) -> Tariff:
    usd = resource.hourly_usd if resource.prepaid is None else resource.prepaid.hourly_usd
    if not resource.nodes:
        each: float | None = 0.0  # in the price of the control plane
    else:
        each = None if usd is None else usd / resource.nodes
    return Tariff(
        pool=resource.pool,
        instance_type=resource.node_type,
        capacity=str(resource.properties.requested().get("capacity", "")),
        hourly_usd=each,
        gpus=resource.gpus,
    )
