"""This machine's public address, as a service reports it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cloudrec.app import access
from cloudrec.errors import PreflightError


class Service(ThreadingHTTPServer):
    """Answers every GET with one status and one text, and counts the calls."""

    def __init__(self, text: str, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.text, self.status, self.calls = text, status, 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self.server.calls += 1
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        pass


@pytest.fixture
def services() -> Iterator[list[Service]]:
    """Services to be closed at the end."""
    made: list[Service] = []
    yield made
    for each in made:
        each.shutdown()
        each.server_close()


def serve(services: list[Service], text: str, status: int = 200) -> Service:
    services.append(Service(text, status))
    return services[-1]


def test_the_next_service_is_asked_when_one_fails(
    services: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, wrong = serve(services, "busy", 503), serve(services, "<html>hello</html>")
    private, good = serve(services, "10.0.0.7"), serve(services, "8.8.4.4\n")
    unused = serve(services, "9.9.9.9")
    urls = tuple(each.url for each in (broken, wrong, private, good, unused))
    monkeypatch.setattr(access, "SERVICES", urls)
    assert str(access.public_address({})) == "8.8.4.4"
    assert [each.calls for each in services] == [1, 1, 1, 1, 0]


def test_an_unknown_address_is_an_error_with_each_reason_and_the_option(
    services: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = tuple(serve(services, text, status).url for text, status in (("busy", 503), ("192.168.1.4", 200)))
    monkeypatch.setattr(access, "SERVICES", urls)
    with pytest.raises(PreflightError, match=r"HTTP 503; .*192\.168\.1\.4 is not a public address") as caught:
        access.public_address({})
    assert "--access ADDRESS" in (caught.value.remedy or "")


def test_a_named_service_is_the_only_one_and_may_report_any_address(services: list[Service]) -> None:
    own = serve(services, "10.1.2.3")
    assert str(access.public_address({access.SERVICE_VARIABLE: own.url})) == "10.1.2.3"
    with pytest.raises(PreflightError, match="Expected 4 octets"):
        access.public_address({access.SERVICE_VARIABLE: serve(services, "2001:db8::1").url})


@pytest.mark.parametrize("url", ["http://example.com/ip", "ftp://example.com", "example.com"])
def test_a_service_without_https_is_refused_before_it_is_asked(url: str) -> None:
    with pytest.raises(PreflightError, match="it must be an https:// URL"):
        access.public_address({access.SERVICE_VARIABLE: url})
