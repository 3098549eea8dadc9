"""The public price list: hourly on-demand and spot prices of Linux machines."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.core.exceptions import AzureError

from cloudrec.providers.azure import prices

SIZE, OTHER = "Standard_ND96asr_v4", "Standard_NC4as_T4_v3"


def row(size: str, usd: float, **changed: Any) -> dict[str, Any]:
    return {
        "serviceName": "Virtual Machines",
        "armSkuName": size,
        "retailPrice": usd,
        "skuName": "ND96asr v4",
        "productName": "Virtual Machines NDasr v4 Series",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "effectiveStartDate": "2026-01-01T00:00:00Z",
        **changed,
    }


def meter(service: str, name: str, usd: float, *, unit: str, **changed: Any) -> dict[str, Any]:
    return {
        "serviceName": service,
        "meterName": name,
        "skuName": "Standard",
        "productName": service,
        "retailPrice": usd,
        "unitOfMeasure": unit,
        "tierMinimumUnits": 0,
        "type": "Consumption",
        "effectiveStartDate": "2026-01-01T00:00:00Z",
        **changed,
    }


ROWS = [
    row(SIZE, 27.2),
    row(SIZE, 46.4, productName="Virtual Machines NDasr v4 Series Windows"),
    row(SIZE, 5.4, skuName="ND96asr v4 Low Priority"),
    row(SIZE, 8.2, skuName="ND96asr v4 Spot"),
    row(SIZE, 99.0, type="Reservation"),
    row(OTHER, 0.6, productName="NCasT4 v3 Series Cloud Services"),
    row(OTHER, 0.7, effectiveStartDate="2025-01-01T00:00:00Z"),
    row(OTHER, 0.526),
    meter("NAT Gateway", "Standard Gateway", 0.052, unit="1 Hour"),
    meter("NAT Gateway", "Standard Gateway", 9.0, unit="1 Hour", tierMinimumUnits=100),
    meter("NAT Gateway", "Basic Gateway", 8.0, unit="1 Hour"),
    meter("Container Registry", "Standard Registry Unit", 0.667, unit="1/Day"),
    meter("Container Registry", "Standard Registry Unit", 7.0, unit="1/Month"),
]


class List(ThreadingHTTPServer):
    """Serves ROWS, three per page; the first response to each request is 429."""

    asked: list[str]
    refused: set[str]


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, List)
        query = parse_qs(urlsplit(self.path).query)
        if self.path not in server.refused:
            server.refused.add(self.path)
            self._answer(429, {})
            return
        server.asked.append(query["$filter"][0])
        start = int(query.get("$skip", ["0"])[0])
        base = f"http://127.0.0.1:{server.server_port}{urlsplit(self.path).path}"
        more = f"{base}?$filter=x&$skip={start + 3}" if start + 3 < len(ROWS) else None
        self._answer(200, {"Items": ROWS[start : start + 3], "NextPageLink": more})

    def _answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class calls it
        """Log nothing."""


@pytest.fixture
def served() -> Iterator[List]:
    server = List(("127.0.0.1", 0), Page)
    server.asked, server.refused = [], set()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def price_list(port: int) -> prices.PriceList:
    return prices.PriceList(
        {
            "AZURE_RETAIL_PRICES_URL": f"http://127.0.0.1:{port}/api/retail/prices",
            "CLOUDREC_SANDBOX_SPEED": "1000",
        }
    )


def test_all_pages_are_read_and_only_current_prices_are_used(served: List) -> None:
    rows = prices.machines(price_list(served.server_port), "westeurope", [SIZE, OTHER])
    assert {(row.name, row.capacity): row.usd for row in rows} == {
        (SIZE, "spot"): 8.2,
        (SIZE, "on-demand"): 27.2,
        (OTHER, "on-demand"): 0.526,
    }
    assert {(row.region, row.unit, row.source) for row in rows} == {
        ("westeurope", "hour", "Azure retail prices")
    }
    assert served.asked[0].startswith("priceType eq 'Consumption' and serviceName eq 'Virtual Machines'")
    assert "armRegionName eq 'westeurope'" in served.asked[0]
    assert f"armSkuName eq '{SIZE}'" in served.asked[0]


def test_the_prices_of_services_are_found_by_their_meters(served: List) -> None:
    rows = prices.services(price_list(served.server_port), "westeurope")
    assert {row.name: (row.usd, row.unit) for row in rows} == {
        "nat-gateway": (0.052, "hour"),
        "acr-standard": (0.667, "day"),
    }
    assert "serviceName eq 'Container Registry' or" in served.asked[0]


def test_an_unreachable_price_list_is_an_error_of_the_sdk() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as closed:
        port = closed.server_port
    with pytest.raises(AzureError):
        prices.machines(price_list(port), "eastus", [SIZE])
