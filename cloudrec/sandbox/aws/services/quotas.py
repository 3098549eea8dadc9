"""Service quotas: AWS's defaults for a new account, until `/_control` sets others.

`quotas` of /_control: {"ec2/L-417A185B": 192}. What a quota limits asks `limit`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.aws.registry import setting

if TYPE_CHECKING:
    from cloudrec.sandbox.aws.world import World

# vCPUs of running instances by family, unless told otherwise.
ON_DEMAND_STANDARD = "ec2/L-1216C47A"
ON_DEMAND_G = "ec2/L-DB2E81BA"
ON_DEMAND_P = "ec2/L-417A185B"
SPOT_STANDARD = "ec2/L-34B43A08"
SPOT_G = "ec2/L-3819A6DF"
SPOT_P = "ec2/L-7212CCBC"  # P4, P3, P2
SPOT_P5 = "ec2/L-C4BD4855"
ELASTIC_IPS = "ec2/L-0263D0A3"  # addresses in a region
VPCS = "vpc/L-F678F1CE"  # VPCs in a region

DEFAULTS: dict[str, float] = {
    ON_DEMAND_STANDARD: 5,
    ON_DEMAND_G: 0,
    ON_DEMAND_P: 0,
    SPOT_STANDARD: 5,
    SPOT_G: 0,
    SPOT_P: 0,
    SPOT_P5: 0,
    ELASTIC_IPS: 5,
    VPCS: 5,
}


@dataclass
class Quotas:
    """What has been set, by "service/code"."""

    values: dict[str, float] = field(default_factory=dict)


def limit(world: World, quota: str) -> float:
    """The value in force of "service/code"."""
    return world.state(Quotas).values.get(quota, DEFAULTS[quota])


def _read(world: World) -> dict[str, float]:
    return DEFAULTS | world.state(Quotas).values


def _write(world: World, wishes: dict[str, Any]) -> None:
    if unknown := sorted(set(wishes) - set(DEFAULTS)):
        raise ValueError(f"unknown quota {', '.join(unknown)}; there are: {', '.join(sorted(DEFAULTS))}")
    world.state(Quotas).values.update({name: float(value) for name, value in wishes.items()})


setting("quotas", read=_read, write=_write)
