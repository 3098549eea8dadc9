"""The public price list: Linux machines by the hour, on demand and as spot, whatever else it names."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cloudrec.providers.azure import prices

SIZE, OTHER = "Standard_ND96asr_v4", "Standard_NC4as_T4_v3"


def row(size: str, usd: float, **changed: Any) -> dict[str, Any]:
    return {
        "armSkuName": size,
        "retailPrice": usd,
        "skuName": "ND96asr v4",
        "productName": "Virtual Machines NDasr v4 Series",
        "unitOfMeasure": "1 Hour",
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
]


class List(ThreadingHTTPServer):
    """Serves ROWS, three a page; its first answer to each question is that it is too busy."""

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
        """Keep still."""


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


def test_all_pages_are_read_for_what_holds_now(served: List) -> None:
    table = prices.refresh(price_list(served.server_port), "westeurope", [SIZE])
    assert table.types == {SIZE: 27.2, OTHER: 0.526}
    assert table.region == "westeurope"
    assert "armRegionName eq 'westeurope'" in served.asked[0]
    assert f"armSkuName eq '{SIZE}'" in served.asked[0]


def test_spot_prices_are_told_apart_from_low_priority(served: List) -> None:
    assert prices.spot(price_list(served.server_port), "eastus", [SIZE, OTHER]) == {SIZE: 8.2}


def test_a_price_list_that_cannot_be_reached_tells_no_spot_price() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as closed:
        port = closed.server_port
    assert prices.spot(price_list(port), "eastus", [SIZE]) == {}
