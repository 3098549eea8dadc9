"""What the subscription's resources cost now, for the bill: by the prices that the retail price list has.

A machine is billed from its allocation to its deallocation, each second; a spot machine at the spot price
of the moment. A disk is billed by its tier, whatever is used of it. A workflow is billed by the executions
of its last run; the subscription's free ones are used up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.registry import charge
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services import price_list, retail
from cloudrec_sandbox.azure.services.aks import pools
from cloudrec_sandbox.azure.services.compute import machines, sizes
from cloudrec_sandbox.azure.services.logic import definitions, runs, workflows
from cloudrec_sandbox.core.world import Charge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

_DAY_H = 24
_HOUR_S = 3600.0
_NETWORK = "Microsoft.Network"
_REGISTRY = "Microsoft.ContainerRegistry/registries"


@charge
def machines_of(world: World) -> Iterator[Charge]:
    """Yield the machines of scale sets, and those of users."""
    for owner, claim in world.state(machines.Machines).claims.items():
        size = sizes.find(claim.size)
        if size is not None and claim.count:
            usd = retail.spot_usd(world, size, claim.region) if claim.spot else None
            usd = price_list.on_demand(size, claim.region) if usd is None else usd
            yield Charge("machines", owner, usd * claim.count)


@charge
def services(world: World) -> Iterator[Charge]:
    """Yield gateways, addresses, control planes and registries."""
    for kind, hourly in (
        (f"{_NETWORK}/natGateways", _gateway),
        (f"{_NETWORK}/publicIPAddresses", _address),
        (pools.CLUSTER, _control_plane),
        (_REGISTRY, _registry),
    ):
        for resource in store(world).of_type(kind):
            if resource.properties.get("provisioningState") in {"Succeeded", "Updating"}:
                yield Charge(kind, resource.key, hourly(resource))


@charge
def executions(world: World) -> Iterator[Charge]:
    """Yield the workflows that run."""
    for resource in store(world).of_type(workflows.TYPE):
        if runs.LAST in resource.facts and resource.properties["state"] == "Enabled":
            an_hour = _HOUR_S / definitions.period_s(resource.properties["definition"])
            usd = price_list.meter_usd("Logic Apps", "Consumption Built-in Actions", resource.location)
            yield Charge(workflows.TYPE, resource.key, usd * runs.executions(resource) * an_hour)


def _gateway(resource: Resource) -> float:
    sku = (resource.document.get("sku") or {}).get("name") or "Standard"
    return price_list.meter_usd("NAT Gateway", f"{sku} Gateway", resource.location)


def _address(resource: Resource) -> float:
    sku = (resource.document.get("sku") or {}).get("name") or "Basic"
    return price_list.meter_usd("Virtual Network", f"{sku} IPv4 Static Public IP", resource.location)


def _control_plane(resource: Resource) -> float:
    tier = (resource.document.get("sku") or {}).get("tier") or "Free"
    meters = {"Standard": "Standard Uptime SLA", "Premium": "Standard Long Term Support"}
    if tier not in meters:
        return 0.0
    return price_list.meter_usd("Azure Kubernetes Service", meters[tier], resource.location)


def _registry(resource: Resource) -> float:
    sku = resource.document["sku"]["name"]
    return price_list.meter_usd("Container Registry", f"{sku} Registry Unit", resource.location) / _DAY_H
