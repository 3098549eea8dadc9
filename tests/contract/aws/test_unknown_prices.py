"""Unknown prices are shown as unknown on the real command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.errors import SpecError
from tests.contract.aws.support import Site
from tests.sandbox.aws.support import Aws

UNPRICED = "p5e.48xlarge"  # sold as capacity blocks only, so no list has its price
REGION, ZONE = "us-east-2", "us-east-2a"
UP = ("up", "aws", "--access", "private", "--cluster", "t")
UNPRICED_UP = (*UP, "--region", REGION, "--zones", ZONE, "--instance-types", UNPRICED)


def cloudrec(aws: Aws, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        **aws.env,
        "CLOUDREC_HOME": str(folder / "home"),
        "CLOUDREC_CLUSTER_OWNER": "tester",
        "CLOUDREC_CLUSTER_ADDONS": "none",
    }
    return subprocess.run(
        [sys.executable, "-m", "cloudrec", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The only cluster in a command's output."""
    (cluster,) = json.loads(done.stdout)["clusters"]
    found: dict[str, Any] = cluster
    return found


def test_a_budget_with_an_unknown_price_is_refused(aws: Aws, tmp_path: Path) -> None:
    refused = cloudrec(aws, tmp_path, *UNPRICED_UP, "--budget", "10", "--yes")
    assert refused.returncode == 2
    assert f"gpu-nodes ({UNPRICED})" in refused.stderr
    assert "--ttl instead of --budget" in refused.stderr
    assert aws.state() == []


@pytest.mark.slow
def test_unknown_prices_need_confirmation_and_are_shown_by_status_and_leaks(aws: Aws, tmp_path: Path) -> None:
    asked = cloudrec(aws, tmp_path, *UNPRICED_UP)
    assert asked.returncode == 6  # the question got no answer
    assert f"+ unknown: gpu-nodes ({UNPRICED}). Continue?" in asked.stderr
    assert aws.state() == []
    title = next(line for line in asked.stderr.splitlines() if line.startswith("cluster t: "))
    lines = asked.stderr.partition(title)[2].partition("warning:")[0].splitlines()
    assert len(lines) <= 8
    assert max(len(line) for line in [title, *lines]) <= 80
    assert "  nodes    2 x p5e.48xlarge (16 GPUs); on-demand" in lines
    table = cloudrec(aws, tmp_path, *UNPRICED_UP, "--dry-run", "--verbose").stderr
    assert [line.split()[:3] for line in table.splitlines() if " vpc/t " in line] == [
        ["create", "vpc/t", "$0.00"]
    ]
    made = cloudrec(aws, tmp_path, *UNPRICED_UP, "--yes", "-o", "json")
    assert made.returncode == 0, made.stderr
    assert f"warning: not every price is known: gpu-nodes ({UNPRICED})" in made.stderr
    plan = document(made)
    assert (plan["hourly_usd"], plan["unknown_prices"]) == (None, [f"gpu-nodes ({UNPRICED})"])
    assert 0 < plan["known_hourly_usd"] < 1
    shown = cloudrec(aws, tmp_path, "status", "t")
    assert "+ unknown" in shown.stdout
    assert f"t: the price of gpu-nodes/t-{UNPRICED}-{ZONE}-on-demand is not known" in shown.stdout
    assert "/h + unknown: gpu-nodes/" in cloudrec(aws, tmp_path, "leaks", "aws", "--region", REGION).stdout
    removal = cloudrec(aws, tmp_path, "down", "aws", "--dry-run")
    assert [line.split()[2] for line in removal.stderr.splitlines() if "gpu-nodes/" in line] == ["unknown"]


@pytest.mark.slow
def test_prices_of_another_region_are_not_used(aws: Aws, tmp_path: Path) -> None:
    denied = {"service": "pricing", "action": "GetProducts", "kind": "error", "times": 999}
    aws.control(faults=[{**denied, "code": "AccessDeniedException", "status": 400, "message": "no"}])
    abroad = (*UP, "--region", "eu-west-1", "--instance-types", "p4d.24xlarge")
    plan = document(cloudrec(aws, tmp_path, *abroad, "--dry-run", "-o", "json"))
    assert plan["hourly_usd"] is None
    assert {"gpu-nodes (p4d.24xlarge)", "nat-gateway/t"} <= set(plan["unknown_prices"])
    refused = cloudrec(aws, tmp_path, *abroad, "--budget", "100", "--yes")
    assert refused.returncode == 2
    assert "use --ttl instead of --budget" in refused.stderr
    listed = cloudrec(aws, tmp_path, "catalog", "aws", "--region", "eu-west-1")
    assert "no price of eu-west-1 is known" in listed.stdout
    aws.control(faults=[])
    allowed = document(cloudrec(aws, tmp_path, *abroad, "--budget", "100", "--dry-run", "-o", "json"))
    assert allowed["hourly_usd"] > 24
    listed = cloudrec(aws, tmp_path, "catalog", "aws", "--region", "eu-west-1")
    assert "eu-west-1, AWS price list" in listed.stdout


def test_a_budget_is_refused_if_one_of_several_types_has_no_price(aws: Aws, tmp_path: Path) -> None:
    types = ("p4d.24xlarge", UNPRICED)
    site = Site(aws, tmp_path, region=REGION, zones=(ZONE,), instance_types=types, budget_usd=100.0)
    with pytest.raises(SpecError, match=rf"gpu-nodes \({UNPRICED}\)"):
        site.up()
    assert aws.state() == []
    site.cluster = site.cluster.model_copy(update={"budget_usd": None})
    plan = app.up(site.application, site.cluster, decide=lambda _plan: False)
    assert (plan.cost.unknown, plan.most.usd) == ((), None)  # the first choice has a price


def test_a_maximum_spot_price_excludes_types_without_a_price(aws: Aws, tmp_path: Path) -> None:
    aws.control(spot_price_factor={"p4d.24xlarge": None})
    zones = ("us-east-1a",)
    site = Site(aws, tmp_path, zones=zones, capacity="spot-first", settings={"max_price": 20.0})
    site.up()
    assert "gpu-nodes/t-p4d.24xlarge-us-east-1a-on-demand" in site.found()
