"""What machines cost: the rows of Azure's public retail price list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_DNS, uuid5

from cloudrec_sandbox.azure.services.compute import sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

# USD an hour in eastus: Linux on demand, spot.
_LISTED: dict[str, tuple[float, float]] = {
    "Standard_D2s_v5": (0.096, 0.0202),
    "Standard_D4s_v5": (0.192, 0.0403),
    "Standard_D8s_v5": (0.384, 0.0807),
    "Standard_D16s_v5": (0.768, 0.1613),
    "Standard_NC4as_T4_v3": (0.526, 0.1052),
    "Standard_NC8as_T4_v3": (0.752, 0.1504),
    "Standard_NC16as_T4_v3": (1.204, 0.2408),
    "Standard_NC64as_T4_v3": (4.352, 0.8704),
    "Standard_NV36ads_A10_v5": (3.2, 0.64),
    "Standard_NV72ads_A10_v5": (6.52, 1.304),
    "Standard_NC24ads_A100_v4": (3.673, 0.8815),
    "Standard_NC48ads_A100_v4": (7.346, 1.763),
    "Standard_NC96ads_A100_v4": (14.692, 3.5261),
    "Standard_NC40ads_H100_v5": (6.98, 2.094),
    "Standard_NC80adis_H100_v5": (13.96, 4.188),
    "Standard_ND96asr_v4": (27.197, 8.1591),
    "Standard_ND96amsr_A100_v4": (32.77, 9.831),
    "Standard_ND96isr_H100_v5": (98.32, 18.1695),
    "Standard_ND96isr_H200_v5": (84.8, 25.44),
}
# Service, meter, SKU, unit, USD in eastus; of each service also a meter that costs otherwise.
_METERS: tuple[tuple[str, str, str, str, float], ...] = (
    ("NAT Gateway", "Standard Gateway", "Standard", "1 Hour", 0.045),
    ("NAT Gateway", "Standard Data Processed", "Standard", "1 GB", 0.045),
    ("NAT Gateway", "StandardV2 Gateway", "StandardV2", "1 Hour", 0.05),
    ("Virtual Network", "Standard IPv4 Static Public IP", "Standard", "1 Hour", 0.005),
    ("Virtual Network", "Basic IPv4 Static Public IP", "Basic", "1 Hour", 0.0036),
    ("Azure Kubernetes Service", "Standard Uptime SLA", "Standard", "1 Hour", 0.10),
    ("Azure Kubernetes Service", "Standard Long Term Support", "Standard", "1 Hour", 0.50),
    ("Container Registry", "Basic Registry Unit", "Basic", "1/Day", 0.1666),
    ("Container Registry", "Standard Registry Unit", "Standard", "1/Day", 0.6666),
    ("Container Registry", "Premium Registry Unit", "Premium", "1/Day", 1.6666),
    ("Logic Apps", "Consumption Built-in Actions", "Consumption", "1", 0.000025),
    ("Logic Apps", "Consumption Standard Connector Actions", "Consumption", "1", 0.000125),
)
# Meters whose first units of a month are free: the list has another row for these.
_FREE_UNITS = {"Consumption Built-in Actions": 4000.0}
_HOME = "eastus"
_ABROAD = 1.08  # factor of other regions, which are more expensive
_PER_VCPU = 0.05  # USD an hour, for a size that is not listed
_SPOT, _WINDOWS, _LOW_PRIORITY, _RESERVED = 0.2, 1.5, 0.4, 0.6  # parts of the on-demand price
_HOURS = 8760  # in a year
_SERVICE = "DZH313Z7MMC8"  # virtual machines
_LOCATIONS = {"eastus": "US East", "eastus2": "US East 2", "westeurope": "EU West", "westus3": "US West 3"}


def on_demand(size: sizes.Size, region: str) -> float:
    """Return the price of a Linux machine, in USD an hour."""
    listed = _LISTED.get(size.name)
    return _at(region, listed[0] if listed else _PER_VCPU * size.vcpus)


def spot(size: sizes.Size, region: str, factor: float | None = None) -> float:
    """Return the price of a Linux spot machine, in USD an hour; `factor`, if given, of the on-demand one."""
    if factor is not None:
        return round(on_demand(size, region) * factor, 6)
    listed = _LISTED.get(size.name)
    return _at(region, listed[1] if listed else _PER_VCPU * size.vcpus * _SPOT)


def meter_usd(service: str, meter: str, region: str) -> float:
    """Return the price of a unit of another service's meter, in USD."""
    return _at(region, next(usd for one, name, _, _, usd in _METERS if (one, name) == (service, meter)))


def _at(region: str, price: float) -> float:
    return round(price if region == _HOME else price * _ABROAD, 6)


def rows(factors: dict[str, float]) -> Iterator[dict[str, Any]]:
    """Yield every row in the list's order; `factors`: spot prices by size, as parts of on-demand prices."""
    for size in sizes.SIZES.values():
        for region in size.family.zones:
            linux = on_demand(size, region)
            yield _row(size, region, linux)
            yield _row(size, region, round(linux * _WINDOWS, 6), windows=True)
            if size.family.spot:
                factor = factors.get(size.name, factors.get("*"))
                yield _row(size, region, spot(size, region, factor), mark=" Spot")
                yield _row(size, region, round(linux * _LOW_PRIORITY, 6), mark=" Low Priority")
            year = _row(size, region, round(linux * _HOURS * _RESERVED, 2))
            # The price of a whole year, though unitOfMeasure is an hour.
            yield {**year, "type": "Reservation", "reservationTerm": "1 Year"}


def meters() -> Iterator[dict[str, Any]]:
    """Yield the rows of other services than machines, in every region that has machines."""
    regions = sorted({region for size in sizes.SIZES.values() for region in size.family.zones})
    for region in regions:
        for service, meter, sku, unit, usd in _METERS:
            row = _meter(region, service, meter, sku, unit) | _priced(_at(region, usd))
            free = _FREE_UNITS.get(meter)
            if free is not None:
                yield row | _priced(0.0)
                row["tierMinimumUnits"] = free
            yield row


def _priced(usd: float) -> dict[str, float]:
    return {"retailPrice": usd, "unitPrice": usd}


def _meter(region: str, service: str, meter: str, sku: str, unit: str) -> dict[str, Any]:
    number = uuid5(NAMESPACE_DNS, f"{service} {meter}").hex.upper()
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "armRegionName": region,
        "location": _LOCATIONS.get(region, region),
        "effectiveStartDate": "2026-01-01T00:00:00Z",
        "meterId": str(uuid5(NAMESPACE_DNS, f"{service} {meter} {region}")),
        "meterName": meter,
        "productId": number[:12],
        "skuId": f"{number[:12]}/{number[12:16]}",
        "productName": service,
        "skuName": sku,
        "serviceName": service,
        "serviceId": f"DZH3{number[16:24]}",
        "serviceFamily": "Networking",
        "unitOfMeasure": unit,
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": "",
    }


def _row(
    size: sizes.Size, region: str, price: float, *, windows: bool = False, mark: str = ""
) -> dict[str, Any]:
    # Linux and Windows share a meter's name: only the product's name distinguishes them.
    product = f"Virtual Machines {size.family.product}" + (" Windows" if windows else "")
    short = size.name.removeprefix("Standard_").replace("_", " ")
    sku = uuid5(NAMESPACE_DNS, f"{product} {short}{mark}").hex.upper()
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": region,
        "location": _LOCATIONS.get(region, region),
        "effectiveStartDate": "2026-01-01T00:00:00Z",
        "meterId": str(uuid5(NAMESPACE_DNS, f"{product} {short}{mark} {region}")),
        "meterName": f"{short}{mark}",
        "productId": sku[:12],
        "skuId": f"{sku[:12]}/{sku[12:16]}",
        "productName": product,
        "skuName": f"{short}{mark}",
        "serviceName": "Virtual Machines",
        "serviceId": _SERVICE,
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": size.name,
    }
