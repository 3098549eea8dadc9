"""How much of a region's network quotas is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.references import ADDRESS
from cloudrec_sandbox.azure.arm.registry import route
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.compute import quotas

if TYPE_CHECKING:
    from cloudrec_sandbox.azure.arm.call import Call


@route("GET", "Microsoft.Network/locations/usages")
def usages(call: Call) -> dict[str, Any]:
    """Return the quotas that the stand-in counts."""
    region = call.path.names[0].lower()
    used = sum(each.location == region for each in store(call.world).of_type(ADDRESS))
    name = quotas.PUBLIC_IPS
    row = {
        "id": f"{call.path.text}/{name}",
        "unit": "Count",
        "currentValue": used,
        "limit": quotas.limit(call.world, region, name),
        "name": {"value": name, "localizedValue": quotas.QUOTAS[name].title},
    }
    return {"value": [row]}
