"""The one offer of this machine: itself, at no price."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.provider import Offer

if TYPE_CHECKING:
    from cloudrec.providers.local.nodes import Machine


def offer(machine: Machine) -> Offer:
    """Describe this machine as a node."""
    return Offer(
        instance_type="this-machine",
        location=machine.hostname,
        capacity="owned",
        vcpus=machine.cores,
        memory_gib=machine.memory_gib,
        gpu=machine.gpus[0] if machine.gpus else "",
        gpus=len(machine.gpus),
        hourly_usd=0.0,
        priced="already paid for",
    )
