"""The public price list: GET /api/retail/prices, which needs no token.

`spot_price_factor` of /_control: spot prices as parts of the on-demand price, by size or "*":
{"Standard_ND96isr_H100_v5": 0.3}.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from cloudrec_sandbox.azure.arm.odata import FilterError, parse
from cloudrec_sandbox.azure.arm.registry import route, setting
from cloudrec_sandbox.azure.services import price_list
from cloudrec_sandbox.azure.services.compute import sizes
from cloudrec_sandbox.core.http import Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.core.world import World

_PAGE = 1000
# The names that a filter may use.
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
    """The spot price factors that /_control has set, by size."""

    values: dict[str, float] = field(default_factory=dict)


def spot_usd(world: World, size: sizes.Size, region: str) -> float:
    """Return the price of a Linux spot machine now, in USD an hour."""
    factors = world.state(Factors).values
    return price_list.spot(size, region, factors.get(size.name, factors.get("*")))


def _write(world: World, factors: Mapping[str, Any]) -> None:
    for name, factor in factors.items():
        size = sizes.find(name)
        if size is None and name != "*":
            raise ValueError(f"spot_price_factor {name!r} is no size that there is, nor *")
        world.state(Factors).values[size.name if size else name] = float(factor)


setting("spot_price_factor", read=lambda world: dict(world.state(Factors).values), write=_write)


@route("GET", "retail/prices")
def prices(call: Call) -> Reply:
    """Return the rows that match a filter, a thousand in a page."""
    text, start = call.query.get("$filter", ""), int(call.query.get("$skip", "0"))
    try:
        test = parse(text, names=_NAMES) if text else None
    except FilterError as error:
        document = {"Error": {"Code": "BadRequest", "Message": f"Invalid OData parameters supplied: {error}"}}
        return json_reply(document, HTTPStatus.BAD_REQUEST)
    listed = chain(price_list.rows(call.world.state(Factors).values), price_list.meters())
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
