"""The nodes of an adopted cluster, with the devices that it gives by dynamic resource allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes import devices
from cloudrec.kubernetes.client.target import DeviceClaim
from cloudrec.providers.base.facts import all_facts

if TYPE_CHECKING:
    from cloudrec.kubernetes.client.client import Kube


def listed(kube: Kube) -> tuple[list[dict[str, Any]], tuple[DeviceClaim, ...]]:
    """Return all nodes, and the devices that pods claim on them instead of a plugin's resource."""
    nodes = kube.list("Node")
    claims = devices.given(kube, nodes, _sources())
    return devices.with_devices(kube, nodes, claims), claims


def _sources() -> tuple[DeviceClaim, ...]:
    """Return GPUs, and the cards of each fabric that a driver for dynamic resource allocation gives."""
    cards = [
        DeviceClaim(
            resource=fabric.card_resource, device_class=fabric.device_class, driver=fabric.device_driver
        )
        for facts in all_facts()
        for fabric in facts.fabrics
        if fabric.device_class
    ]
    return (devices.GPUS, *cards)
