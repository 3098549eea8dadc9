"""What is told before a cluster is made, what nodes cost, and how one gets in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import PreflightError
from cloudrec.home import Home
from cloudrec.kube.target import Target
from cloudrec.provider import Finding
from cloudrec.providers.gcp import access, prices, quota
from cloudrec.providers.gcp.provider import GcpProvider
from cloudrec.spec.models import ClusterSpec
from tests.contract.gcp.support import Site, whole
from tests.contract.sandbox_gcp.support import Gcp as Cloud

ZONES = ("us-central1-a", "us-central1-b")


def findings(cloud: Cloud, folder: Path, **given: Any) -> dict[str, Finding]:
    site = whole(cloud, folder, **given)
    found = [*quota.credentials(site.gcp), *quota.findings(site.gcp, site.layout())]
    return {finding.check: finding for finding in found}


def entered(site: Site, folder: Path) -> Any:
    return access.of(site.layout(), site.gcp, Home(root=folder / "home"), site.cloud.env)


def test_a_project_that_has_all_has_nothing_to_be_told(cloud: Cloud, tmp_path: Path) -> None:
    found = findings(cloud, tmp_path, zones=ZONES)
    assert [finding for finding in found.values() if not finding.ok and finding.blocks] == []
    assert {"credentials", "project", "billing", "APIs", "bucket", "leftovers"} <= found.keys()


@pytest.mark.parametrize(
    ("control", "given", "told"),
    [
        (
            {"quotas": {"us-central1/NVIDIA_A100_GPUS": 4}},
            {},
            "quota: 1 x a2-highgpu-8g, on-demand (NVIDIA_A100_GPUS): 4, of which 0 are used by others",
        ),
        ({}, {"kubernetes_version": "1.20"}, "Kubernetes version: channel REGULAR offers 1."),
        ({}, {"settings": {"reservation": "ours"}}, "reservation ours: not there"),
        (
            {},
            {"settings": {"kms_key": "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"}},
            "key: it is in europe-west4",
        ),
        (
            {"apis": {"artifactregistry.googleapis.com": False}},
            {"settings": {"enable_apis": False}},
            "APIs: not enabled: artifactregistry.googleapis.com",
        ),
    ],
)
def test_what_cannot_succeed_is_told_with_its_remedy(
    cloud: Cloud, tmp_path: Path, control: dict[str, Any], given: dict[str, Any], told: str
) -> None:
    cloud.control(**control)
    found = findings(cloud, tmp_path, zones=ZONES[:1], **given)
    (finding,) = [each for check, each in found.items() if f"{check}: {each.found}".startswith(told)]
    assert (finding.ok, finding.blocks) == (False, True)
    assert finding.remedy


def test_a_project_that_nobody_pays_for_is_told_of_first(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(project={"billing": False})
    (told,) = quota.credentials(whole(cloud, tmp_path).gcp)
    assert not told.ok
    assert "no billing account" in told.found
    assert "gcloud billing projects link" in told.remedy


def test_a_quota_that_rules_out_one_way_of_several_is_a_warning(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(quotas={"us-central1/PREEMPTIBLE_NVIDIA_A100_GPUS": 0})
    found = findings(cloud, tmp_path, zones=ZONES, capacity="spot-first")
    told = found["quota: 1 x a2-highgpu-8g, spot (PREEMPTIBLE_NVIDIA_A100_GPUS)"]
    assert (told.ok, told.blocks) == (False, False)


def test_new_gpus_on_demand_have_their_limit_elsewhere(cloud: Cloud, tmp_path: Path) -> None:
    found = findings(cloud, tmp_path, zones=ZONES[:1], instance_types=["a3-highgpu-8g"])
    (told,) = [finding for check, finding in found.items() if "GPUS-PER-GPU-FAMILY" in check]
    assert told.needed == "8"


def test_a_cluster_that_is_there_does_not_stand_in_its_own_way(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(quotas={"us-central1/NVIDIA_A100_GPUS": 8})
    whole(cloud, tmp_path, zones=ZONES[:1]).up()
    found = findings(cloud, tmp_path, zones=ZONES[:1])
    assert [finding for finding in found.values() if not finding.ok and finding.blocks] == []
    assert found["cluster name"].found == "cloudrec-t is there"


def test_access_writes_a_private_kubeconfig_without_a_secret(cloud: Cloud, tmp_path: Path) -> None:
    site = whole(cloud, tmp_path, zones=ZONES[:1], nodes=2)
    with pytest.raises(PreflightError, match="is not up: there is no cloudrec-t"):
        entered(site, tmp_path)
    site.up()
    given = entered(site, tmp_path)
    path = Path(given.details["kubeconfig"])
    written = json.loads(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    assert written["clusters"][0]["cluster"]["server"].startswith("https://")
    assert "certificate-authority-data" not in written["clusters"][0]["cluster"]
    assert (given.nodes, given.gpus_per_node, given.cores_per_node) == (2, 8, 48)
    assert given.storage == "gs://cloudrec-t-123456789012-us-central1"
    target = Target.of(given.details)
    assert (target.notices, target.notice_s, target.fabric) == ("gcp", 15, "tcp")
    assert (target.instance_type, target.built_in) == ("a2-highgpu-8g", ["nvidia-device-plugin"])
    assert target.image_repository == "us-central1-docker.pkg.dev/sandbox-project/cloudrec-t/trainer"
    assert given.details["node_selector"] == {"cloud.google.com/gke-nodepool": "gpu-a2-highgpu-8g-a-od"}
    before = path.stat().st_mtime_ns
    entered(site, tmp_path)
    assert path.stat().st_mtime_ns == before


def test_the_command_of_the_kubeconfig_prints_a_token_that_google_takes(cloud: Cloud) -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "cloudrec.providers.gcp.token"],
        env={**os.environ, **cloud.env},
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    credential = json.loads(asked.stdout)
    assert credential["kind"] == "ExecCredential"
    assert credential["status"]["expirationTimestamp"].endswith("Z")
    assert len(credential["status"]["token"]) > 20


def test_offers_tell_what_is_tried_and_what_it_costs(cloud: Cloud, tmp_path: Path) -> None:
    provider = GcpProvider(Home(root=tmp_path), cloud.env)
    asked = ClusterSpec(name="t", provider="gcp", zones=ZONES, capacity="spot-first")
    offered = provider.offers(asked)
    assert [(offer.capacity, offer.location) for offer in offered] == [
        (market, zone) for market in ("spot", "on-demand") for zone in ZONES
    ]
    assert offered[0].hourly_usd == 10.3468
    assert offered[-1].hourly_usd == 29.3871
    assert all(prices.shipped().date in offer.priced for offer in offered)


def test_prices_are_renewed_from_the_catalogue_and_kept(cloud: Cloud, tmp_path: Path) -> None:
    asked = ClusterSpec(name="t", provider="gcp", region="us-central1")
    GcpProvider(Home(root=tmp_path), cloud.env).catalog(asked, refresh=True)
    later = GcpProvider(Home(root=tmp_path), cloud.env)
    listed = later.catalog(asked, refresh=False)
    (on_demand,) = [
        offer for offer in listed if (offer.instance_type, offer.capacity) == ("a2-highgpu-8g", "on-demand")
    ]
    assert on_demand.hourly_usd == pytest.approx(29.387, abs=0.01)
    assert "Cloud Billing catalogue" in on_demand.priced
    assert later.account("us-central1").prices.node("a3-megagpu-8g/spot")
