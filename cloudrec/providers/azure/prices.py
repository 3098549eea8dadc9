"""Azure's prices: the table that ships with the code, and the public price list that updates it.

The price list (Azure Retail Prices REST API) needs no credentials. It returns the rows of every currency zone
in USD, and a filter's values are case-sensitive. A spot price is the same in all zones of a region.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from azure.core import PipelineClient
from azure.core.pipeline.policies import RetryPolicy, UserAgentPolicy
from azure.core.rest import HttpRequest, HttpResponse

from cloudrec.engine.clock import Clock
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.errors import object_of
from cloudrec.providers.base.offers import ON_DEMAND, SPOT
from cloudrec.providers.base.prices import EXECUTION, Price, Prices, table_of, today
from cloudrec.providers.base.reading import read
from cloudrec.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_Client = PipelineClient[HttpRequest, HttpResponse]
LOGIC_EXECUTION = "logic-execution"  # of a trigger or a built-in action of a workflow
_URL = "https://prices.azure.com/api/retail/prices"
_TIMEOUT_S = 30
_PAGES = 20  # the most that are read, of 100 rows each; the queries here have one or two


@cache
def shipped() -> Prices:
    """Return the table that ships with the code."""
    return table_of(__package__)


@dataclass(frozen=True, kw_only=True)
class _Meter:
    """A meter of the price list.

    Attributes:
        name: our name of it.
        service: its `serviceName`.
        meter: its `meterName`.
        unit: its `unitOfMeasure`.
        has_free_units: whether a subscription's first units of each month are free; others may use them up.
    """

    name: str
    service: str
    meter: str
    unit: str
    has_free_units: bool = False

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row is a price of this meter, before any discount for a large amount."""
        return (
            (row.get("serviceName"), row.get("meterName"), row.get("unitOfMeasure"))
            == (self.service, self.meter, self.unit)
            and row.get("type") == "Consumption"
            and bool(row.get("tierMinimumUnits")) == self.has_free_units
        )


# The list's unit -> ours.
_UNITS: Mapping[str, str] = MappingProxyType({"1 Hour": "hour", "1/Day": "day", "1 GB": "GB", "1": EXECUTION})
# The names of services and meters are those by which infracost finds the same prices.
_METERS = (
    _Meter(name="nat-gateway", service="NAT Gateway", meter="Standard Gateway", unit="1 Hour"),
    _Meter(name="nat-gateway-gb", service="NAT Gateway", meter="Standard Data Processed", unit="1 GB"),
    _Meter(
        name="public-ip", service="Virtual Network", meter="Standard IPv4 Static Public IP", unit="1 Hour"
    ),
    _Meter(
        name="aks-standard",
        service="Azure Kubernetes Service",
        meter="Standard Uptime SLA",
        unit="1 Hour",
    ),
    *(
        _Meter(
            name=f"acr-{sku.lower()}",
            service="Container Registry",
            meter=f"{sku} Registry Unit",
            unit="1/Day",
        )
        for sku in ("Basic", "Standard", "Premium")
    ),
    _Meter(
        name=LOGIC_EXECUTION,
        service="Logic Apps",
        meter="Consumption Built-in Actions",
        unit="1",
        has_free_units=True,
    ),
)


class PriceList:
    """Azure's retail prices.

    Args:
        environment: may have AZURE_RETAIL_PRICES_URL, which replaces the public address, and AZURE_CA_BUNDLE.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._url = environment.get("AZURE_RETAIL_PRICES_URL") or _URL
        self._verify: str | bool = environment.get("AZURE_CA_BUNDLE") or True
        self._speed = Clock.of(environment).speed

    def rows(self, query: str) -> list[Mapping[str, Any]]:
        """Return the rows of pay-as-you-go prices that match a filter.

        Raises:
            azure.core.exceptions.AzureError: the price list refuses or cannot be reached.
        """
        with _Client(
            self._url,
            policies=[UserAgentPolicy(f"cloudrec/{__version__}"), RetryPolicy(retry_total=0)],
            connection_verify=self._verify,
            connection_timeout=_TIMEOUT_S,
            read_timeout=_TIMEOUT_S,
        ) as client:
            return list(self._rows(client, f"priceType eq 'Consumption' and {query}"))

    def virtual_machines(self, region: str, sizes: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the rows for Linux machines of these sizes in a region, on demand and spot."""
        named = " or ".join(f"armSkuName eq '{size}'" for size in sizes)
        query = f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' and ({named})"
        return [row for row in self.rows(query) if _is_plain(row)]

    def _rows(self, client: _Client, query: str) -> Iterator[Mapping[str, Any]]:
        request = HttpRequest("GET", self._url, params={"$filter": query})
        for _ in range(_PAGES):
            page = read(partial(_get, client, request), again=errors.is_transient, speed=self._speed)
            yield from page.get("Items") or ()
            following = page.get("NextPageLink")
            if not following:
                return
            request = HttpRequest("GET", following)


def machines(price_list: PriceList, region: str, sizes: Sequence[str]) -> list[Price]:
    """Return the current prices of Linux machines, on demand and spot; a spot price holds in all zones."""
    rows = price_list.virtual_machines(region, sizes) if sizes else []
    return [
        _price(region, name, capacity, "hour", row)
        for capacity, wanted in ((SPOT, True), (ON_DEMAND, False))
        for name, row in _newest((row for row in rows if _is_spot(row) is wanted), "armSkuName").items()
    ]


def services(price_list: PriceList, region: str) -> list[Price]:
    """Return the current prices of a region's gateway, addresses, registry and control plane."""
    wanted = sorted({meter.service for meter in _METERS})
    named = " or ".join(f"serviceName eq '{service}'" for service in wanted)
    rows = price_list.rows(f"armRegionName eq '{region}' and ({named})")
    return [
        _price(region, meter.name, "", _UNITS[row["unitOfMeasure"]], row)
        for meter in _METERS
        for row in _newest((row for row in rows if meter.fits(row)), "meterName").values()
    ]


def _get(client: _Client, request: HttpRequest) -> dict[str, Any]:
    response = client.send_request(request)
    response.raise_for_status()
    return object_of(response)


def _is_plain(row: Mapping[str, Any]) -> bool:
    """Return whether a row is a Linux virtual machine that is sold by the hour, on demand or spot."""
    # "Low Priority" is what spot capacity was called earlier, with other prices.
    product = row.get("productName", "").replace(" ", "")
    return (
        row.get("serviceName") == "Virtual Machines"
        and row.get("type") == "Consumption"
        and row.get("unitOfMeasure") == "1 Hour"
        and not any(other in product for other in ("Windows", "CloudServices", "DedicatedHost"))
        and "Low Priority" not in row.get("skuName", "")
    )


def _is_spot(row: Mapping[str, Any]) -> bool:
    return "Spot" in row.get("skuName", "").split()


def _newest(rows: Iterable[Mapping[str, Any]], by: str) -> dict[str, Mapping[str, Any]]:
    """Return the row with the latest start for each value of a field."""
    found = sorted(rows, key=lambda row: str(row.get("effectiveStartDate", "")))
    return {str(row[by]): row for row in found}


def _price(region: str, name: str, capacity: str, unit: str, row: Mapping[str, Any]) -> Price:
    return Price(
        region=region,
        name=name,
        capacity=capacity,
        unit=unit,
        usd=float(row["retailPrice"]),
        as_of=today(),
        source="Azure retail prices",
    )
