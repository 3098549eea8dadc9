"""`cloudrec cost` against the bill that a stand-in keeps by itself, for the whole life of a cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudrec_sandbox.core.admission import TOKEN_VARIABLE
from cloudrec_sandbox.core.client import Control
from tests.e2e.test_sandbox_session import Laptop, until
from tests.tallies import Tally

ENDPOINTS = {
    "aws": "AWS_ENDPOINT_URL",
    "azure": "AZURE_RESOURCE_MANAGER_ENDPOINT_URL",
    "gcp": "GOOGLE_CLOUD_ENDPOINT_URL",
}
# A node is billed from its start, and metered from its registration, which is some minutes later in a cloud.
# Here it is a second of this.
LIFE_S = 300.0


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    made = Laptop(tmp_path)
    yield made
    made.run("sandbox", "stop")
    until(lambda: not made.pids(), "no process is left")


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("cloud", sorted(ENDPOINTS))
@pytest.mark.parametrize("capacity", ["on-demand", "spot"])
def test_the_cost_agrees_with_the_bill(laptop: Laptop, cloud: str, capacity: str, tally: Tally) -> None:
    assert laptop.run("--sandbox", "doctor", cloud).returncode == 0
    session = laptop.session(cloud)
    assert session is not None
    variables = session["variables"]
    control = Control(
        variables[ENDPOINTS[cloud]], variables[TOKEN_VARIABLE], authority=variables.get("SSL_CERT_FILE")
    )
    control.order(bill=True)
    made = laptop.run("--sandbox", "up", cloud, "--capacity", capacity, "--no-managed", "--yes")
    assert made.returncode == 0, made.stderr
    time.sleep(LIFE_S)
    assert laptop.run("--sandbox", "down", cloud, "--yes").returncode == 0
    (cost,) = json.loads(laptop.run("--sandbox", "cost", cloud, "-o", "json").stdout)["clusters"]
    billed = float(control.ask("GET", "/bill")["usd"])
    tally(f"{cloud} {capacity}: cost ${cost['usd']:.4f}, bill ${billed:.4f}, {cost['usd'] / billed:.4f}")
    assert cost["removed"]
    assert cost["usd"] == pytest.approx(billed, rel=0.01)
