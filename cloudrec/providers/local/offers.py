"""The only offer of the local provider: this machine, at a price of 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.base.protocol import OWNED, Offer

if TYPE_CHECKING:
    from cloudrec.providers.local.nodes import LocalHardware


def offer(machine: LocalHardware) -> Offer:
    """Return this machine as an offer."""
    return Offer(
        instance_type="this-machine",
        location=machine.hostname,
        capacity=OWNED,
        vcpus=machine.cores,
        memory_gib=machine.memory_gib,
        gpu=machine.gpus[0] if machine.gpus else "",
        gpus=len(machine.gpus),
        hourly_usd=0.0,
        priced="already paid for",
    )
