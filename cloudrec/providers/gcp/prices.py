"""Google's prices: the table that ships with the code, and its refresh from the Cloud Billing catalogue.

The catalogue prices parts, not machines: a core, a GiB of memory, a GPU or a GiB of local disk, each on
demand and as spot, by region. The price of a machine type is the sum of its parts. Spot prices are the same
in all zones of a region, and hold for weeks.
"""

from __future__ import annotations

import re
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.providers.base.offers import ON_DEMAND, SPOT
from cloudrec.providers.base.prices import GIB_MONTH, HOURS_A_MONTH, Price, table_of, today
from cloudrec.providers.gcp.offers import KNOWN, SSD_GIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from google.cloud.billing_v1 import PricingExpression, Sku

    from cloudrec.providers.base.prices import Prices

    Parts = Mapping[tuple[str, str], float]  # (part, capacity type) -> USD per hour of one unit

_SSD = "SSD backed Local Storage"
# The catalogue's name of a series, before "Instance Core" and "Instance Ram".
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
_SAME = {"Nvidia H100 80GB Plus GPU": "Nvidia H100 80GB Mega GPU"}  # the catalogue has both names for one GPU
_PARTS = (
    *(f"{series} Instance {part}" for series in _SERIES.values() for part in ("Core", "Ram")),
    *_GPUS.values(),
    *_SAME,
    _SSD,
)
# The description of a part at its list price. Reservations, commitments and calendar mode have other ones.
_PART = re.compile(
    rf"(?P<spot>Spot Preemptible )?(?P<part>{'|'.join(map(re.escape, _PARTS))})"
    r"(?P<attached> attached to Spot Preemptible VMs)?(( running)? in .+)?"
)
# The catalogue's name of a disk, before "in" and a region -> Compute Engine's.
_DISKS: Mapping[str, str] = MappingProxyType(
    {
        "Balanced PD Capacity": "pd-balanced",
        "SSD backed PD Capacity": "pd-ssd",
        "Storage PD Capacity": "pd-standard",
        "Hyperdisk Balanced Capacity": "hyperdisk-balanced",
    }
)
_DISK = re.compile(rf"(?P<disk>{'|'.join(map(re.escape, _DISKS))})( in .+)?")
_STANDARD = re.compile(r"(?P<series>[a-z0-9]+)-standard-(?P<vcpus>\d+)")
# Of local SSDs that are added to a machine; the catalogue sells those of spot machines for less.
LOCAL_SSD, SPOT_LOCAL_SSD = "disk-local-ssd-gib", "disk-local-ssd-spot-gib"
_STANDARD_GIB = 4  # of memory for each virtual core


@cache
def shipped() -> Prices:
    """Return the table that ships with the code."""
    return table_of(__package__)


def listed(skus: Sequence[Sku], region: str, instance_types: Sequence[str]) -> list[Price]:
    """Return the prices of a region from the catalogue: machine types on demand and as spot, and disks.

    Args:
        skus: the catalogue's SKUs of Compute Engine.
        region: the region of the prices.
        instance_types: the machine types to price.
    """
    parts = parts_of(skus, region)
    machines = [
        _price(region, name, capacity, "hour", usd)
        for name in instance_types
        for capacity in (ON_DEMAND, SPOT)
        if (usd := priced(name, capacity, parts)) is not None
    ]
    ssds = [
        # As a price for a month, like the other disks'; 730 hours, as in the vendors' price lists.
        _price(region, name, "", GIB_MONTH, parts[_SSD, capacity] * HOURS_A_MONTH)
        for name, capacity in ((LOCAL_SSD, ON_DEMAND), (SPOT_LOCAL_SSD, SPOT))
        if (_SSD, capacity) in parts
    ]
    return [*machines, *_disks(skus, region), *ssds]


def _disks(skus: Sequence[Sku], region: str) -> list[Price]:
    """Return the prices of a region's disks."""
    here = [sku for sku in skus if region in sku.service_regions]
    matched = [(_DISK.fullmatch(sku.description), sku) for sku in here]
    return [
        _price(
            region,
            f"disk-{_DISKS[match['disk']]}-gib",
            "",
            GIB_MONTH,
            _usd(sku.pricing_info[-1].pricing_expression),
        )
        for match, sku in matched
        if match is not None and sku.pricing_info[-1].pricing_expression.usage_unit == "GiBy.mo"
    ]


def _price(region: str, name: str, capacity: str, unit: str, usd: float) -> Price:
    return Price(
        region=region,
        name=name,
        capacity=capacity,
        unit=unit,
        usd=usd,
        as_of=today(),
        source="Cloud Billing catalogue",
    )


def parts_of(skus: Iterable[Sku], region: str) -> Parts:
    """Return the prices of the parts of machines in a region, in USD per hour of one core, GPU or GiB."""
    found: dict[tuple[str, str], float] = {}
    for sku in skus:
        match = _PART.fullmatch(sku.description)
        if match is None or region not in sku.service_regions or sku.category.usage_type.startswith("Commit"):
            continue
        capacity = SPOT if match["spot"] or match["attached"] else ON_DEMAND
        part = _SAME.get(match["part"], match["part"])
        found[part, capacity] = _hourly(sku.pricing_info[-1].pricing_expression)
    return found


def _hourly(expression: PricingExpression) -> float:
    """Return the price of one unit in USD per hour."""
    usd = _usd(expression)
    return usd / HOURS_A_MONTH if expression.usage_unit.endswith(".mo") else usd


def _usd(expression: PricingExpression) -> float:
    """Return the price of one unit in USD, in the last tier: after any free usage."""
    price = expression.tiered_rates[-1].unit_price
    return float(price.units + price.nanos / 1e9)


def priced(name: str, capacity: str, parts: Parts) -> float | None:
    """Return the price of a machine in USD per hour; None if a part of it has no price."""
    needed = _needed(name)
    if not needed or any((part, capacity) not in parts for part in needed):
        return None
    return round(sum(count * parts[part, capacity] for part, count in needed.items()), 4)


def _needed(name: str) -> dict[str, float]:
    """Return the parts of a machine type and how many units of each; empty for an unknown type."""
    hardware, standard = KNOWN.get(name), _STANDARD.fullmatch(name)
    if hardware is not None:
        series = next((of for prefix, of in _SERIES.items() if name.startswith(f"{prefix}-")), "")
        if not series or hardware.accelerator not in _GPUS:
            return {}  # the catalogue's names of its parts are not known
        return {
            f"{series} Instance Core": hardware.vcpus,
            f"{series} Instance Ram": hardware.memory_gib,
            _GPUS[hardware.accelerator]: hardware.gpus,
            **({_SSD: hardware.local_ssds * SSD_GIB} if hardware.local_ssds else {}),
        }
    if standard is None or standard["series"] not in _SERIES:
        return {}
    series, vcpus = _SERIES[standard["series"]], int(standard["vcpus"])
    return {f"{series} Instance Core": vcpus, f"{series} Instance Ram": _STANDARD_GIB * vcpus}
