"""Google's prices: the table that ships with the code, and the Cloud Billing catalogue that renews it.

The catalogue sells parts, not machines: a core, a GiB, a GPU, a GiB of local disk, each on demand and as
spot, by region. A machine type's price is the sum of its parts. Spot prices are a region's, not a zone's,
and hold for weeks; in the tables they stand under TYPE/spot.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.offers import ON_DEMAND, SPOT
from cloudrec.cloud.prices import HOURS_A_MONTH, table_of
from cloudrec.providers.gcp.offers import KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.cloud.prices import Prices
    from cloudrec.providers.gcp.client import Gcp

    Parts = Mapping[tuple[str, str], float]  # part, market -> USD an hour of one

COMPUTE_ENGINE = "services/6F81-5844-456A"  # as the catalogue calls it
_PAGE = 5000  # SKUs: the most that it gives at once
_SSD, _SSD_GIB = "SSD backed Local Storage", 375
# What the catalogue calls the cores and the memory of a series, before "Instance Core" and "Instance Ram".
_SERIES: Mapping[str, str] = MappingProxyType(
    {
        "a2": "A2",
        "a3-highgpu": "A3",
        "a3-megagpu": "A3Plus",
        "g2": "G2",
        "e2": "E2",
        "n2": "N2",
        "n2d": "N2D AMD",
    }
)
_GPUS: Mapping[str, str] = MappingProxyType(
    {
        "nvidia-l4": "Nvidia L4 GPU",
        "nvidia-tesla-a100": "Nvidia Tesla A100 GPU",
        "nvidia-a100-80gb": "Nvidia Tesla A100 80GB GPU",
        "nvidia-h100-80gb": "Nvidia H100 80GB GPU",
        "nvidia-h100-mega-80gb": "Nvidia H100 80GB Mega GPU",
    }
)
_SAME = {"Nvidia H100 80GB Plus GPU": "Nvidia H100 80GB Mega GPU"}  # one thing under two names
_PARTS = (
    *(f"{series} Instance {part}" for series in _SERIES.values() for part in ("Core", "Ram")),
    *_GPUS.values(),
    *_SAME,
    _SSD,
)
# A part as it is sold to everybody: reservations, commitments and calendars are described otherwise.
_PART = re.compile(
    rf"(?P<spot>Spot Preemptible )?(?P<part>{'|'.join(map(re.escape, _PARTS))})"
    r"(?P<attached> attached to Spot Preemptible VMs)?(( running)? in .+)?"
)
_STANDARD = re.compile(r"(?P<series>[a-z0-9]+)-standard-(?P<vcpus>\d+)")
_STANDARD_GIB = 4  # a virtual core


@cache
def shipped() -> Prices:
    """Return the table that ships with the code."""
    return table_of(__package__)


def refresh(gcp: Gcp, region: str, instance_types: Sequence[str] = ()) -> Prices:
    """Ask the catalogue for the prices of a region.

    Args:
        gcp: how it is reached.
        region: whose prices are wanted.
        instance_types: types to ask for beside those of the shipped table.
    """
    rows = gcp.rows(gcp.client("catalog").list_skus, parent=COMPUTE_ENGINE, page_size=_PAGE)
    parts = parts_of(rows, region)
    names = {name.partition("/")[0] for name in (*shipped().types, *instance_types)}
    types = {
        key: price
        for name in sorted(names)
        for market, key in ((ON_DEMAND, name), (SPOT, spot_key(name)))
        if (price := priced(name, market, parts)) is not None
    }
    return replace(
        shipped(),
        date=datetime.now(UTC).date().isoformat(),
        source="Cloud Billing catalogue",
        region=region,
        types=types,
    )


def spot(prices: Prices, instance_types: Sequence[str], zones: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return the spot price of each type and zone, in USD an hour, as far as the table has it."""
    priced = {name: price for name in instance_types if (price := prices.node(spot_key(name))) is not None}
    return {(name, zone): price for name, price in priced.items() for zone in zones}


def spot_key(instance_type: str) -> str:
    """Return the name under which a table has the spot price of a type."""
    return f"{instance_type}/{SPOT}"


def nodes(prices: Prices, instance_type: str, market: str, count: int) -> float:
    """USD an hour of some nodes; as spot, what they cost on demand where the table knows no better."""
    key = spot_key(instance_type) if market == SPOT else instance_type
    return prices.nodes(key if prices.node(key) is not None else instance_type, count)


def parts_of(skus: Iterable[Any], region: str) -> Parts:
    """Return what the parts of machines cost in a region, in USD an hour of one core, GPU or GiB."""
    found: dict[tuple[str, str], float] = {}
    for sku in skus:
        told = _PART.fullmatch(sku.description)
        if told is None or region not in sku.service_regions or sku.category.usage_type.startswith("Commit"):
            continue
        market = SPOT if told["spot"] or told["attached"] else ON_DEMAND
        part = _SAME.get(told["part"], told["part"])
        found[part, market] = _hourly(sku.pricing_info[-1].pricing_expression)
    return found


def _hourly(expression: Any) -> float:  # noqa: ANN401 - the SDK's model
    """The price of one unit, after what is free, in USD an hour."""
    price = expression.tiered_rates[-1].unit_price
    usd = float(price.units + price.nanos / 1e9)
    return usd / HOURS_A_MONTH if expression.usage_unit.endswith(".mo") else usd


def priced(name: str, market: str, parts: Parts) -> float | None:
    """Return the price of a machine by its parts, in USD an hour; None where one of them has none."""
    needed = _needed(name)
    if not needed or any((part, market) not in parts for part in needed):
        return None
    return round(sum(count * parts[part, market] for part, count in needed.items()), 4)


def _needed(name: str) -> dict[str, float]:
    """The parts that make a machine; empty for a machine that we do not know."""
    hardware, standard = KNOWN.get(name), _STANDARD.fullmatch(name)
    if hardware is not None:
        series = next(of for prefix, of in _SERIES.items() if name.startswith(f"{prefix}-"))
        return {
            f"{series} Instance Core": hardware.vcpus,
            f"{series} Instance Ram": hardware.memory_gib,
            _GPUS[hardware.accelerator]: hardware.gpus,
            **({_SSD: hardware.local_ssds * _SSD_GIB} if hardware.local_ssds else {}),
        }
    if standard is None or standard["series"] not in _SERIES:
        return {}
    series, vcpus = _SERIES[standard["series"]], int(standard["vcpus"])
    return {f"{series} Instance Core": vcpus, f"{series} Instance Ram": _STANDARD_GIB * vcpus}
