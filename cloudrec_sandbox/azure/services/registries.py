"""Microsoft.ContainerRegistry: registries, whose names must be unique in all of Azure."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import durations, route
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services import names
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource

durations({"registry-create": 15, "registry-update": 5, "registry-delete": 10})

TYPE = "Microsoft.ContainerRegistry/registries"
_MODELS = "azure.mgmt.containerregistry.models"
_NAME = re.compile(r"[A-Za-z0-9]{5,50}")
# What only a Premium registry has, with the value of the others.
_PREMIUM = {"zoneRedundancy": "Disabled", "publicNetworkAccess": "Enabled", "dataEndpointEnabled": False}


@register
class Registries(Kind):
    """Registries."""

    type = TYPE
    apis: ClassVar[Sequence[str]] = ("2025-11-01", "2025-04-01", "2023-07-01")
    model = f"{_MODELS}:Registry"
    patch_model = f"{_MODELS}:RegistryUpdateParameters"
    name_rule = r".*"  # the service itself refuses a name, with its own error
    create_time, update_time, delete_time = "registry-create", "registry-update", "registry-delete"
    polled_by: ClassVar[Sequence[str]] = ("azure-async",)

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the name, that it is free, and what the SKU supports."""
        name, sku = call.path.name, (body.get("sku") or {}).get("name")
        if not _NAME.fullmatch(name):
            raise ArmError("InvalidResourceName", _bad_name(name))
        if old is None and _is_taken(call, name):
            raise ArmError("AlreadyInUse", _taken(name), status=HTTPStatus.CONFLICT)
        properties = body.get("properties") or {}
        if sku != "Premium":
            _check_plain(name, sku, properties)
        if sku == "Basic" and properties.get("anonymousPullEnabled"):
            raise ArmError(
                "InvalidRequest", f"Anonymous pull is not supported for the SKU Basic of registry {name}."
            )

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Fill in the defaults."""
        properties, before = resource.properties, old["properties"] if old else {}
        properties |= {
            "loginServer": f"{resource.name.lower()}.azurecr.io",
            "creationDate": before.get("creationDate", as_datetime(call.world.now()).isoformat()),
        }
        for name, value in _PREMIUM.items():
            properties.setdefault(name, value)
        properties.setdefault("adminUserEnabled", False)
        properties.setdefault("anonymousPullEnabled", False)
        properties.setdefault("roleAssignmentMode", "LegacyRegistryPermissions")
        resource.document["sku"] = {
            "name": resource.document["sku"]["name"],
            "tier": resource.document["sku"]["name"],
        }


def _check_plain(name: str, sku: str | None, properties: Mapping[str, Any]) -> None:
    for member, value in _PREMIUM.items():
        if properties.get(member, value) != value:
            raise ArmError(
                "InvalidRequest",
                f"The property {member} {properties[member]} of registry {name} is not supported for the SKU "
                f"{sku}: it needs Premium.",
            )
    rules = properties.get("networkRuleSet") or {}
    if rules.get("defaultAction") == "Deny" or rules.get("ipRules"):
        raise ArmError(
            "InvalidRequest", f"Network rules are not supported for the SKU {sku} of registry {name}."
        )


def _bad_name(name: str) -> str:
    return (
        f"Invalid resource name: '{name}'. It may contain alpha numeric characters only and must be between "
        "5 and 50 characters."
    )


def _taken(name: str) -> str:
    return (
        f"The registry DNS name {name.lower()}.azurecr.io is already in use. You can check if the name is "
        "already claimed using following API: "
        "https://docs.microsoft.com/en-us/rest/api/containerregistry/registries/checknameavailability"
    )


def _is_taken(call: Call, name: str) -> bool:
    there = (each.name.lower() for each in store(call.world).of_type(TYPE))
    return name.lower() in there or names.is_foreign(call.world, names.REGISTRIES, name)


@route("POST", "Microsoft.ContainerRegistry/checkNameAvailability")
def check_name(call: Call) -> dict[str, Any]:
    """Return whether a name is available."""
    name = str(call.body.get("name") or "")
    if not _NAME.fullmatch(name):
        return {"nameAvailable": False, "reason": "Invalid", "message": _bad_name(name)}
    if _is_taken(call, name):
        return {"nameAvailable": False, "reason": "AlreadyExists", "message": _taken(name)}
    return {"nameAvailable": True}
