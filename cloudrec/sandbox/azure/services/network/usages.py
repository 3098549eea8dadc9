"""How much of a region's network quotas is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.azure.registry import route
from cloudrec.sandbox.azure.services.compute import quotas
from cloudrec.sandbox.azure.services.network.references import ADDRESS
from cloudrec.sandbox.azure.store import store

if TYPE_CHECKING:
    from cloudrec.sandbox.azure.call import Call


@route("GET", "Microsoft.Network/locations/usages")
def usages(call: Call) -> dict[str, Any]:
    """Those that the stand-in keeps."""
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
