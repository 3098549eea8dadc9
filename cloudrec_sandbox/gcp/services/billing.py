"""Cloud Billing v1: whether a project has billing, and the catalogue, which sells machines in parts.

`prices` of /_control: {"A2 Instance Core": 0.04} changes what a part costs on demand everywhere, in USD a
unit; spot costs a fixed share of it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api import projects
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest, setting
from cloudrec_sandbox.gcp.resources import paging
from cloudrec_sandbox.gcp.resources.places import REGIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

_ACCOUNT = "billingAccounts/0X0X0X-0X0X0X-0X0X0X"
_ENGINE = "6F81-5844-456A"
_SPOT = 0.4  # of the on-demand price
_HOUR, _GIB_HOUR, _GIB_MONTH = "h", "GiBy.h", "GiBy.mo"
_NANOS = 10**9
_MOST = 5000
# The on-demand price of a part in us-central1, in USD a unit, and its unit.
_PARTS: dict[str, tuple[float, str]] = {
    "A2 Instance Core": (0.031611, _HOUR),
    "A2 Instance Ram": (0.004237, _GIB_HOUR),
    "A3 Instance Core": (0.029391, _HOUR),
    "A3 Instance Ram": (0.002548, _GIB_HOUR),
    "A3Plus Instance Core": (0.029391, _HOUR),
    "A3Plus Instance Ram": (0.002548, _GIB_HOUR),
    "G2 Instance Core": (0.024988, _HOUR),
    "G2 Instance Ram": (0.002927, _GIB_HOUR),
    "E2 Instance Core": (0.021812, _HOUR),
    "E2 Instance Ram": (0.002924, _GIB_HOUR),
    "N2 Instance Core": (0.031611, _HOUR),
    "N2 Instance Ram": (0.004237, _GIB_HOUR),
    "N2D AMD Instance Core": (0.027502, _HOUR),
    "N2D AMD Instance Ram": (0.003686, _GIB_HOUR),
    "Nvidia Tesla A100 GPU": (2.933908, _HOUR),
    "Nvidia Tesla A100 80GB GPU": (3.92786, _HOUR),
    "Nvidia H100 80GB GPU": (9.796538, _HOUR),
    "Nvidia H100 80GB Plus GPU": (10.23, _HOUR),
    "Nvidia L4 GPU": (0.560040, _HOUR),
    "SSD backed Local Storage": (0.08, _GIB_MONTH),
}
# The price of a disk in us-central1, in USD a GiB and month. A regional disk is two.
_DISKS = {
    "Storage PD Capacity": 0.04,
    "Balanced PD Capacity": 0.10,
    "SSD backed PD Capacity": 0.17,
    "Regional Balanced PD Capacity": 0.20,
}
_CONTINENTS = {"us": "Americas", "europe": "EMEA", "asia": "APAC", "australia": "APAC"}
_DEARER = {"Americas": 1.0, "EMEA": 1.1, "APAC": 1.2}


@dataclass
class Prices:
    """The prices that were changed."""

    changed: dict[str, float] = field(default_factory=dict)


@rest("cloudbilling", "projects.getBillingInfo", "GET", "/v1/projects/{project}/billingInfo")
def billing_info(call: Call) -> dict[str, Any]:
    """Return whether a project has billing."""
    project = projects.find(call.world, call.project)
    if project is None:
        raise GcpError("PERMISSION_DENIED", "The caller does not have permission")
    return {
        "name": f"projects/{project.id}/billingInfo",
        "projectId": project.id,
        "billingEnabled": project.billing,
        **({"billingAccountName": _ACCOUNT} if project.billing else {}),
    }


@rest("cloudbilling", "services.list", "GET", "/v1/services", query=("pageSize", "pageToken"))
def list_services(call: Call) -> dict[str, Any]:
    """Return the services that are sold: here, Compute Engine."""
    del call
    row = {"name": f"services/{_ENGINE}", "serviceId": _ENGINE, "displayName": "Compute Engine"}
    return {"services": [{**row, "businessEntityName": "businessEntities/GCP"}]}


@rest(
    "cloudbilling",
    "services.skus.list",
    "GET",
    "/v1/services/{service}/skus",
    query=("currencyCode", "endTime", "pageSize", "pageToken", "startTime"),
)
def list_skus(call: Call) -> dict[str, Any]:
    """Return the parts of machines by group of regions, on demand, as spot, and committed."""
    if call.params["service"] != _ENGINE:
        raise GcpError("NOT_FOUND", f"Service services/{call.params['service']} was not found.")
    size = int(call.query.get("pageSize", _MOST)) or _MOST
    if size > _MOST:
        raise GcpError("INVALID_ARGUMENT", f"Page size must be at most {_MOST}.")
    items, token = paging.part([*_skus(call.world), *_disks()], size, call.query.get("pageToken", ""))
    return {"skus": items, "nextPageToken": token}


def part_usd(world: World, part: str, region: str, *, is_spot: bool) -> float:
    """Return the price of a unit of a part in a region, in USD."""
    usual, _ = _PARTS[part]
    share = _SPOT if is_spot else 1.0
    return world.state(Prices).changed.get(part, usual) * _factor(region) * share


def disk_usd(disk: str, region: str) -> float:
    """Return the price of a GiB-month of a disk in a region, in USD."""
    return _DISKS[disk] * _factor(region)


def _factor(region: str) -> float:
    return _DEARER[_CONTINENTS[region.partition("-")[0]]]


def _skus(world: World) -> Iterator[dict[str, Any]]:
    changed = world.state(Prices).changed
    for part, (usual, unit) in _PARTS.items():
        price = changed.get(part, usual)
        for continent, factor in _DEARER.items():
            for text, usage, share in _ways(part, continent):
                yield _sku(text, usage, price * factor * share, unit, continent)


def _disks() -> Iterator[dict[str, Any]]:
    for disk, price in _DISKS.items():
        for continent, factor in _DEARER.items():
            where = "" if continent == "Americas" else f" in {continent}"
            yield _sku(f"{disk}{where}", "OnDemand", price * factor, _GIB_MONTH, continent)


def _ways(part: str, continent: str) -> Iterator[tuple[str, str, float]]:
    """Yield how a part is sold: the words, the kind of use, and the share of the price that it costs."""
    ssd = part.startswith("SSD")
    where = "" if ssd and continent == "Americas" else f" in {continent}"
    running = where if ssd or not where else f" running{where}"
    yield f"{part}{running}", "OnDemand", 1.0
    if " Instance " in part:
        yield f"Spot Preemptible {part}{running}", "Preemptible", _SPOT
        yield f"Commitment v1: {part}{where} for 1 Year", "Commit1Yr", 0.63
    else:
        yield f"{part} attached to Spot Preemptible VMs{running}", "Preemptible", _SPOT
        if not ssd:
            yield f"Commitment v1: {part}{running} for 1 Year", "Commit1Yr", 0.63


def _sku(text: str, usage: str, price: float, unit: str, continent: str) -> dict[str, Any]:
    number = f"{zlib.crc32(text.encode()):08X}"
    name = f"{number[:4]}-{number[4:]}-{zlib.adler32(text.encode()) & 0xFFFF:04X}"
    whole, nanos = divmod(round(price * _NANOS), _NANOS)
    rate = {
        "startUsageAmount": 0,
        "unitPrice": {"currencyCode": "USD", "units": str(whole), "nanos": nanos},
    }
    return {
        "name": f"services/{_ENGINE}/skus/{name}",
        "skuId": name,
        "description": text,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Storage" if unit == _GIB_MONTH else "Compute",
            "resourceGroup": "GPU" if "Nvidia" in text else "CPU",
            "usageType": usage,
        },
        "serviceRegions": [
            region for region in REGIONS if _CONTINENTS[region.partition("-")[0]] == continent
        ],
        "pricingInfo": [
            {
                "effectiveTime": "2026-11-01T00:00:00Z",
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "tieredRates": [rate],
                    "baseUnit": "s" if unit == _HOUR else "By.s",
                    "baseUnitConversionFactor": 3600,
                },
                "currencyConversionRate": 1,
            }
        ],
        "serviceProviderName": "Google",
    }


def _write(world: World, wishes: Mapping[str, float]) -> None:
    if unknown := sorted(set(wishes) - set(_PARTS)):
        raise ValueError(f"nothing is sold as {', '.join(unknown)}; there are: {', '.join(sorted(_PARTS))}")
    world.state(Prices).changed.update({part: float(price) for part, price in wishes.items()})


setting("prices", read=lambda world: world.state(Prices).changed, write=_write)
