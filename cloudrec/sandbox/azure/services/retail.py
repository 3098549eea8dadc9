"""The public price list: GET /api/retail/prices, for which nobody needs a token.

`spot_price_factor` of /_control: spot prices as parts of the price on demand, by size or "*":
{"Standard_ND96isr_H100_v5": 0.3}.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from cloudrec.sandbox.azure.odata import FilterError, parse
from cloudrec.sandbox.azure.registry import route, setting
from cloudrec.sandbox.azure.services import price_list
from cloudrec.sandbox.azure.services.compute import sizes
from cloudrec.sandbox.http import Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.sandbox.azure.call import Call
    from cloudrec.sandbox.world import World

_PAGE = 1000
# What a filter may ask for.
_NAMES = (
    "armRegionName",
    "location",
    "meterId",
    "meterName",
    "productId",
    "skuId",
    "productName",
    "skuName",
    "serviceName",
    "serviceId",
    "serviceFamily",
    "priceType",
    "armSkuName",
)


@dataclass
class Factors:
    """What /_control has said of spot prices, by size."""

    values: dict[str, float] = field(default_factory=dict)


def _write(world: World, factors: Mapping[str, Any]) -> None:
    for name, factor in factors.items():
        size = sizes.find(name)
        if size is None and name != "*":
            raise ValueError(f"spot_price_factor {name!r} is no size that there is, nor *")
        world.state(Factors).values[size.name if size else name] = float(factor)


setting("spot_price_factor", read=lambda world: dict(world.state(Factors).values), write=_write)


@route("GET", "retail/prices")
def prices(call: Call) -> Reply:
    """The rows that a filter finds, a thousand at a time."""
    text, start = call.query.get("$filter", ""), int(call.query.get("$skip", "0"))
    try:
        test = parse(text, names=_NAMES) if text else None
    except FilterError as error:
        told = {"Error": {"Code": "BadRequest", "Message": f"Invalid OData parameters supplied: {error}"}}
        return json_reply(told, HTTPStatus.BAD_REQUEST)
    listed = price_list.rows(call.world.state(Factors).values)
    # What a row calls `type` is `priceType` to a filter.
    found = [row for row in listed if test is None or test({**row, "priceType": row["type"]})]
    rows, more = found[start : start + _PAGE], len(found) > start + _PAGE
    query = urlencode({**({"$filter": text} if text else {}), "$skip": start + _PAGE})
    return json_reply(
        {
            "BillingCurrency": "USD",
            "CustomerEntityId": "Default",
            "CustomerEntityType": "Retail",
            "Items": rows,
            "NextPageLink": f"{call.base}{call.path.text}?{query}" if more else None,
            "Count": len(rows),
        }
    )
