"""Subscriptions, their locations, the tenant.

`subscriptions` of /_control: {ID: "Enabled"|"Disabled"|"Warned"|"PastDue"}; null removes one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.paths import SUBSCRIPTION
from cloudrec_sandbox.azure.arm.regions import REGIONS
from cloudrec_sandbox.azure.arm.registry import route, setting
from cloudrec_sandbox.azure.identity import entra

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.core.world import World

_STATES = ("Enabled", "Disabled", "Warned", "PastDue")
_READ_ONLY = ("Disabled", "Warned")
_LOGICAL = ("europe", "global", "unitedstates")  # listed, but no resource can be in them
_CATEGORIES = {"Physical": "Recommended", "Logical": "Other"}


@dataclass
class Subscriptions:
    """Their states by id."""

    states: dict[str, str] = field(default_factory=lambda: {SUBSCRIPTION: "Enabled"})


def check(call: Call) -> None:
    """Refuse an unknown subscription, and changes in a disabled one."""
    wanted = call.path.subscription
    if not wanted:
        return
    state = call.world.state(Subscriptions).states.get(wanted)
    if state is None:
        raise ArmError(
            "SubscriptionNotFound",
            f"The subscription '{wanted}' could not be found.",
            status=HTTPStatus.NOT_FOUND,
        )
    # A disabled subscription can still be read and emptied.
    if state in _READ_ONLY and call.target.method in ("PUT", "PATCH", "POST"):
        raise ArmError(
            "ReadOnlyDisabledSubscription",
            f"The subscription '{wanted}' is disabled and therefore marked as read only. You cannot "
            f"perform any write "
            "actions on this subscription until it is re-enabled.",
            status=HTTPStatus.CONFLICT,
        )


def _row(call: Call, name: str) -> dict[str, Any]:
    return {
        "id": f"/subscriptions/{name}",
        "subscriptionId": name,
        "tenantId": entra.TENANT,
        "displayName": "cloudrec sandbox",
        "state": call.world.state(Subscriptions).states[name],
        "subscriptionPolicies": {
            "locationPlacementId": "Public_2014-09-01",
            "quotaId": "PayAsYouGo_2014-09-01",
            "spendingLimit": "Off",
        },
        "authorizationSource": "RoleBased",
    }


@route("GET", "Microsoft.Resources/subscriptions")
def read(call: Call) -> dict[str, Any]:
    """Return one subscription, or all."""
    if call.path.is_item:
        return _row(call, call.path.name.lower())
    return {
        "value": [_row(call, name) for name in call.world.state(Subscriptions).states],
        "count": {"type": "Total", "value": len(call.world.state(Subscriptions).states)},
    }


@route("GET", "Microsoft.Resources/tenants")
def tenants(_call: Call) -> dict[str, Any]:
    """Return the tenant."""
    tenant = {"id": f"/tenants/{entra.TENANT}", "tenantId": entra.TENANT, "displayName": "cloudrec sandbox"}
    return {"value": [tenant]}


@route("GET", "Microsoft.Resources/locations")
def locations(call: Call) -> dict[str, Any]:
    """Return the regions, with the subscription's own numbers for their zones, and Azure's logical ones."""
    rows = []
    for name in [*REGIONS, *_LOGICAL]:
        place = "Logical" if name in _LOGICAL else "Physical"
        row: dict[str, Any] = {
            "id": f"{call.path.scope}/locations/{name}",
            "subscriptionId": call.path.subscription,
            "name": name,
            "type": "Region",
            "displayName": name,
            "regionalDisplayName": name,
            "metadata": {"regionType": place, "regionCategory": _CATEGORIES[place]},
        }
        if zones := REGIONS.get(name):
            row["availabilityZoneMappings"] = [
                {"logicalZone": zone, "physicalZone": f"{name}-az{zone}"} for zone in zones
            ]
        rows.append(row)
    return {"value": rows}


def _write(world: World, wishes: Mapping[str, str | None]) -> None:
    states = world.state(Subscriptions).states
    for name, state in wishes.items():
        if state is None:
            states.pop(name.lower(), None)
        elif state in _STATES:
            states[name.lower()] = state
        else:
            raise ValueError(f"state {state!r} is none of {', '.join(_STATES)}")


setting("subscriptions", read=lambda world: dict(world.state(Subscriptions).states), write=_write)
