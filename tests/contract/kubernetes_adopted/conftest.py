"""One API server per module, emptied before each test."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.support_clouds import Cloud, Site, stand_in
from tests.standins.servers import moto_server


@pytest.fixture(scope="module")
def server() -> Iterator[Cloud]:
    with stand_in("kubernetes") as server:
        yield server


@pytest.fixture
def site(server: Cloud, tmp_path: Path) -> Site:
    server.reset()
    return Site(server, tmp_path)


@pytest.fixture(scope="module")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """S3 as moto serves it, with an empty bucket."""
    with moto_server(tmp_path_factory.mktemp("s3") / "s3.log") as port:
        endpoint = f"http://127.0.0.1:{port}"
        request = urllib.request.Request(f"{endpoint}/bucket", method="PUT")  # noqa: S310 - on loopback
        with urllib.request.urlopen(request):  # noqa: S310 - on loopback
            pass
        yield endpoint


@pytest.fixture
def bucket(s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The storage of a launched run: a separate folder in a bucket of moto."""
    given = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**given, "AWS_ENDPOINT_URL_S3": s3_endpoint}.items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/{tmp_path.name}"
