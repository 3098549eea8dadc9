"""Preflight, prices, and access to a cluster on Google Cloud."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import PreflightError
from cloudrec.findings import Finding
from cloudrec.home import Home
from cloudrec.providers.gcp import access, preflight
from cloudrec.providers.gcp.provider import GcpProvider
from cloudrec.spec.models import ClusterSpec
from tests.contract.gcp.support import Site, whole
from tests.sandbox.gcp.support import Gcp as Cloud

ZONES = ("us-central1-a", "us-central1-b")


def findings(cloud: Cloud, folder: Path, **given: Any) -> dict[str, Finding]:
    site = whole(cloud, folder, **given)
    found = [*preflight.credentials(site.gcp), *preflight.findings(site.gcp, site.layout())]
    return {finding.check: finding for finding in found}


def entered(site: Site, folder: Path) -> Any:
    return access.of(site.layout(), site.gcp, Home(root=folder / "home"), site.cloud.env)


def test_a_complete_project_passes_preflight(cloud: Cloud, tmp_path: Path) -> None:
    found = findings(cloud, tmp_path, zones=ZONES)
    assert [finding for finding in found.values() if not finding.ok and finding.blocks] == []
    assert {"credentials", "project", "billing", "APIs", "bucket", "leftovers"} <= found.keys()


@pytest.mark.parametrize(
    ("control", "given", "expected"),
    [
        (
            {"quotas": {"us-central1/NVIDIA_A100_GPUS": 4}},
            {},
            "quota: 1 x a2-highgpu-8g, on-demand (NVIDIA_A100_GPUS): 4, of which 0 are used by others",
        ),
        ({}, {"kubernetes_version": "1.20"}, "Kubernetes version: channel REGULAR offers 1."),
        ({}, {"settings": {"reservation": "ours"}}, "reservation ours: it does not exist"),
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
def test_preflight_problems_are_reported_with_their_remedies(
    cloud: Cloud, tmp_path: Path, control: dict[str, Any], given: dict[str, Any], expected: str
) -> None:
    cloud.control(**control)
    found = findings(cloud, tmp_path, zones=ZONES[:1], **given)
    (finding,) = [each for check, each in found.items() if f"{check}: {each.found}".startswith(expected)]
    assert (finding.ok, finding.blocks) == (False, True)
    assert finding.remedy


def test_all_apis_that_a_new_project_lacks_for_a_plan_are_named_at_once(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(project={"new": True})
    provider = GcpProvider(Home(root=tmp_path), cloud.env)
    cluster = ClusterSpec.model_validate({"name": "t", "provider": "gcp", "zones": ZONES[:1]})
    since = len(cloud.calls())
    (finding,) = provider.preflight(cluster)
    base = ["cloudresourcemanager", "compute", "container", "iam"]
    names = [f"{name}.googleapis.com" for name in base]
    assert (finding.check, finding.ok, finding.blocks) == ("APIs", False, True)
    assert finding.found == f"not enabled: {', '.join(names)}"
    assert f"`gcloud services enable {' '.join(names)} --project sandbox-project`" in finding.remedy
    assert {call["service"] for call in cloud.calls(since)} <= {"oauth2", "serviceusage"}
    cloud.control(apis=dict.fromkeys(names, True))
    blocking = [each for each in provider.preflight(cluster) if not each.ok and each.blocks]
    assert [each.check for each in blocking] == []
    (rest,) = [each for each in provider.preflight(cluster) if each.check == "APIs"]
    assert "artifactregistry.googleapis.com" in rest.found
    assert rest.remedy.startswith("`cloudrec up` enables them")
    whole(cloud, tmp_path, zones=ZONES[:1]).up()


def test_service_usage_itself_is_named_if_it_is_disabled(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(apis={"serviceusage.googleapis.com": False})
    (finding,) = preflight.credentials(whole(cloud, tmp_path).gcp)
    assert "gcloud services enable serviceusage.googleapis.com cloudresourcemanager." in finding.remedy


def test_a_project_without_billing_is_reported_first(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(project={"billing": False})
    (finding,) = preflight.credentials(whole(cloud, tmp_path).gcp)
    assert not finding.ok
    assert "no billing account" in finding.found
    assert "gcloud billing projects link" in finding.remedy


def test_a_quota_that_excludes_one_of_several_candidates_is_a_warning(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(quotas={"us-central1/PREEMPTIBLE_NVIDIA_A100_GPUS": 0})
    found = findings(cloud, tmp_path, zones=ZONES, capacity="spot-first")
    finding = found["quota: 1 x a2-highgpu-8g, spot (PREEMPTIBLE_NVIDIA_A100_GPUS)"]
    assert (finding.ok, finding.blocks) == (False, False)


def test_the_quota_of_newer_on_demand_gpus_is_per_gpu_family(cloud: Cloud, tmp_path: Path) -> None:
    found = findings(cloud, tmp_path, zones=ZONES[:1], instance_types=["a3-highgpu-8g"])
    (finding,) = [finding for check, finding in found.items() if "GPUS-PER-GPU-FAMILY" in check]
    assert finding.needed == "8"


def test_an_existing_cluster_passes_its_own_preflight(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(quotas={"us-central1/NVIDIA_A100_GPUS": 8})
    whole(cloud, tmp_path, zones=ZONES[:1]).up()
    found = findings(cloud, tmp_path, zones=ZONES[:1])
    assert [finding for finding in found.values() if not finding.ok and finding.blocks] == []
    assert found["cluster name"].found == "cloudrec-t exists"


def test_access_writes_a_private_kubeconfig_without_a_secret(cloud: Cloud, tmp_path: Path) -> None:
    site = whole(cloud, tmp_path, zones=ZONES[:1], nodes=2)
    with pytest.raises(PreflightError, match="is not up: there is no cloudrec-t"):
        entered(site, tmp_path)
    site.up()
    given = entered(site, tmp_path)
    path = Path(given.target.kubeconfig)
    written = json.loads(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    assert written["clusters"][0]["cluster"]["server"].startswith("https://")
    assert "certificate-authority-data" not in written["clusters"][0]["cluster"]
    assert (given.nodes, given.gpus_per_node, given.cores_per_node) == (2, 8, 48)
    assert given.storage == "gs://cloudrec-t-123456789012-us-central1"
    target = given.target
    assert (target.notices, target.is_preempted, target.fabric) == ("gcp", False, "tcp")
    assert (target.instance_type, target.built_in) == ("a2-highgpu-8g", ["nvidia-device-plugin"])
    assert target.image_repository == "us-central1-docker.pkg.dev/sandbox-project/cloudrec-t/trainer"
    assert given.target.node_selector == {"cloud.google.com/gke-nodepool": "gpu-a2-highgpu-8g-a-od"}
    before = path.stat().st_mtime_ns
    entered(site, tmp_path)
    assert path.stat().st_mtime_ns == before


def test_the_kubeconfig_command_prints_a_token_that_google_accepts(cloud: Cloud) -> None:
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


def test_offers_list_the_candidates_and_their_prices(cloud: Cloud, tmp_path: Path) -> None:
    provider = GcpProvider(Home(root=tmp_path), cloud.env)
    asked = ClusterSpec(name="t", provider="gcp", zones=ZONES, capacity="spot-first")
    offered = provider.offers(asked)
    assert [(offer.capacity, offer.location) for offer in offered] == [
        (capacity, zone) for capacity in ("spot", "on-demand") for zone in ZONES
    ]
    assert offered[0].hourly_usd == 15.4242
    assert offered[-1].hourly_usd == 29.3871
    assert {offer.priced for offer in offered} == {
        "2026-08-06, us-central1, karpenter-provider-gcp: initial-prices.json"
    }


def test_prices_are_refreshed_from_the_catalogue_and_cached(cloud: Cloud, tmp_path: Path) -> None:
    asked = ClusterSpec(name="t", provider="gcp", region="us-central1")
    GcpProvider(Home(root=tmp_path), cloud.env).catalog(asked, refresh=True)
    later = GcpProvider(Home(root=tmp_path), cloud.env)
    listed = later.catalog(asked, refresh=False)
    (on_demand,) = [
        offer for offer in listed if (offer.instance_type, offer.capacity) == ("a2-highgpu-8g", "on-demand")
    ]
    assert on_demand.hourly_usd == pytest.approx(29.387, abs=0.01)
    assert "Cloud Billing catalogue" in on_demand.priced
    assert later.account("us-central1").prices.price("a3-megagpu-8g", "spot")
