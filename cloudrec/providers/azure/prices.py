"""Azure's prices: the table that ships with the code, and the public price list that renews it.

The price list is asked without credentials. Spot prices are a region's, not a zone's.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from azure.core import PipelineClient
from azure.core.exceptions import AzureError
from azure.core.pipeline.policies import RetryPolicy, UserAgentPolicy
from azure.core.rest import HttpRequest

from cloudrec import __version__
from cloudrec.cloud.prices import Prices, saved_at, table_of
from cloudrec.cloud.reading import read
from cloudrec.engine.clock import Clock
from cloudrec.providers.azure import errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_URL = "https://prices.azure.com/api/retail/prices"
_TIMEOUT_S = 30
_PAGES = 20  # of a hundred rows; our questions have one or two


@cache
def shipped() -> Prices:
    """Return the table that ships with the code."""
    return table_of(__package__)


def saved(path: Path) -> Prices:
    """Return the shipped table with the prices that `Prices.save` wrote; DataError where it holds none."""
    return saved_at(path, shipped())


class PriceList:
    """Azure's retail prices.

    Args:
        environment: AZURE_RETAIL_PRICES_URL in place of the public address, AZURE_CA_BUNDLE as everywhere.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._url = environment.get("AZURE_RETAIL_PRICES_URL") or _URL
        self._verify: str | bool = environment.get("AZURE_CA_BUNDLE") or True
        self._speed = Clock.of(environment).speed

    def virtual_machines(self, region: str, sizes: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the list's rows for Linux machines of these sizes, sold by the hour in a region."""
        named = " or ".join(f"armSkuName eq '{size}'" for size in sizes)
        asked = (
            f"serviceName eq 'Virtual Machines' and priceType eq 'Consumption' "
            f"and armRegionName eq '{region}' and ({named})"
        )
        with PipelineClient(
            self._url,
            policies=[UserAgentPolicy(f"cloudrec/{__version__}"), RetryPolicy(retry_total=0)],
            connection_verify=self._verify,
            connection_timeout=_TIMEOUT_S,
            read_timeout=_TIMEOUT_S,
        ) as client:
            return [row for row in self._rows(client, asked) if _is_plain(row)]

    def _rows(self, client: Any, asked: str) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 - the SDK's
        request = HttpRequest("GET", self._url, params={"$filter": asked})
        for _ in range(_PAGES):
            page = read(partial(_get, client, request), again=errors.is_transient, speed=self._speed)
            yield from page.get("Items") or ()
            following = page.get("NextPageLink")
            if not following:
                return
            request = HttpRequest("GET", following)


def refresh(price_list: PriceList, region: str, instance_types: Sequence[str] = ()) -> Prices:
    """Ask the price list for the prices of a region.

    Args:
        price_list: how it is reached.
        region: whose prices are wanted.
        instance_types: sizes to ask for beside those of the shipped table.
    """
    wanted = sorted({*shipped().types, *instance_types})
    rows = price_list.virtual_machines(region, wanted)
    return replace(
        shipped(),
        date=datetime.now(UTC).date().isoformat(),
        source="Azure retail prices",
        region=region,
        types=_newest(row for row in rows if not _is_spot(row)),
    )


def spot(price_list: PriceList, region: str, instance_types: Sequence[str]) -> dict[str, float]:
    """Return what sizes cost as spot now, in USD an hour; nothing where the list cannot be reached.

    It only shows: Azure itself holds to the limit that a pool sets.
    """
    try:
        rows = price_list.virtual_machines(region, instance_types)
    except AzureError:
        return {}
    return _newest(row for row in rows if _is_spot(row))


def _get(client: Any, request: HttpRequest) -> dict[str, Any]:  # noqa: ANN401 - the SDK's
    response = client.send_request(request)
    response.raise_for_status()
    page: dict[str, Any] = response.json()
    return page


def _is_plain(row: Mapping[str, Any]) -> bool:
    """Tell whether a row is a virtual machine with Linux, sold by the hour to everybody."""
    product = row.get("productName", "").replace(" ", "")
    return (
        row.get("type") == "Consumption"
        and row.get("unitOfMeasure") == "1 Hour"
        and not any(other in product for other in ("Windows", "CloudServices", "DedicatedHost"))
        and "Low Priority" not in row.get("skuName", "")
    )


def _is_spot(row: Mapping[str, Any]) -> bool:
    return "Spot" in row.get("skuName", "").split()


def _newest(rows: Iterator[Mapping[str, Any]]) -> dict[str, float]:
    """Return the price of each size that holds now; a row that begins later than another succeeds it."""
    found = sorted(rows, key=lambda row: str(row.get("effectiveStartDate", "")))
    return {str(row["armSkuName"]): float(row["retailPrice"]) for row in found}
