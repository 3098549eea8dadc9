"""The kubeconfig with which Kubernetes' clients enter, and what a run is told of the machines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.cloud.container_v1.types import Cluster

from cloudrec.cloud.offers import Place
from cloudrec.plan.transport import profile_of
from cloudrec.providers.gcp import access, limits
from cloudrec.providers.gcp.offers import KNOWN
from tests.unit.providers_gcp.support import layout

ENVIRONMENT = {"GOOGLE_APPLICATION_CREDENTIALS": "/a/key.json", "GOOGLE_CLOUD_REGION": "us-central1"}


def entered(**ends: Any) -> dict[str, Any]:
    cluster = Cluster(
        name="cloudrec-t",
        endpoint="203.0.113.7",
        master_auth={"cluster_ca_certificate": "Q0E="},
        control_plane_endpoints_config=ends,
    )
    return access.kubeconfig_of(cluster, ENVIRONMENT)


def test_by_its_name_a_cluster_is_trusted_as_google_is() -> None:
    made = entered(
        dns_endpoint_config={"endpoint": "gke-1.us-central1.gke.goog", "allow_external_traffic": True}
    )
    assert made["clusters"] == [
        {"name": "cloudrec-t", "cluster": {"server": "https://gke-1.us-central1.gke.goog"}}
    ]


def test_by_its_address_a_cluster_is_trusted_for_its_own_certificate() -> None:
    made = entered(ip_endpoints_config={"enabled": True})
    assert made["clusters"][0]["cluster"] == {
        "server": "https://203.0.113.7",
        "certificate-authority-data": "Q0E=",
    }


def test_the_kubeconfig_names_the_command_that_gets_a_token_and_holds_none() -> None:
    entry = entered()["users"][0]["user"]["exec"]
    assert [entry["command"], *entry["args"]] == [sys.executable, "-m", "cloudrec.providers.gcp.token"]
    assert entry["env"] == [{"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/a/key.json"}]


def test_without_credentials_the_token_tells_so_in_a_line(tmp_path: Path) -> None:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("GOOGLE_", "CLOUDSDK_"))
    }
    asked = subprocess.run(
        [sys.executable, "-m", "cloudrec.providers.gcp.token"],
        env={**kept, "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none.json")},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert (asked.returncode, asked.stdout) == (3, "")
    assert "none.json" in asked.stderr
    assert "Traceback" not in asked.stderr


@pytest.mark.parametrize(
    ("machine", "fabric"),
    [
        ("a3-highgpu-8g", "tcpx"),
        ("a3-megagpu-8g", "tcpxo"),
        ("a2-highgpu-8g", "tcp"),
        ("g2-standard-4", "tcp"),
    ],
)
def test_a_profile_knows_every_card_that_a_machine_has_for_its_gpus(machine: str, fabric: str) -> None:
    hardware = KNOWN[machine]
    profile = profile_of(hardware.fabric, machine)
    assert hardware.fabric == profile.fabric == fabric
    assert profile.expects.minimum_cards == hardware.gpu_nics


def test_manifests_learn_which_network_each_card_is_in() -> None:
    told = access.networks(layout(types=("a3-megagpu-8g",)), 8)
    assert [each["interface"] for each in told] == [f"eth{number}" for number in range(1, 9)]
    assert len({each["network"] for each in told}) == len({each["subnetwork"] for each in told}) == 8
    assert not [each for each in told if "/" in each["network"] + each["subnetwork"]]
    assert access.networks(layout(), 0) == []


def counted(machine: str, market: str, nodes: int = 2) -> dict[str, float]:
    way = Place(instance_type=machine, zone="us-central1-a", market=market)
    return dict(limits.needs(way, KNOWN[machine], nodes))


def test_each_way_of_having_nodes_counts_against_quotas_of_its_own() -> None:
    assert counted("a2-highgpu-8g", "on-demand") == {"NVIDIA_A100_GPUS": 16, "GPUS_ALL_REGIONS": 16}
    assert counted("a2-ultragpu-1g", "spot") == {
        "PREEMPTIBLE_NVIDIA_A100_80GB_GPUS": 2,
        "PREEMPTIBLE_LOCAL_SSD_GB": 750,
    }
    assert counted("a3-megagpu-8g", "flex-start")["PREEMPTIBLE_NVIDIA_H100_MEGA_GPUS"] == 16
    assert counted("a3-highgpu-8g", "on-demand") == {"GPUS-PER-GPU-FAMILY-per-project-region NVIDIA_H100": 16}
    assert counted("a3-highgpu-8g", "reservation") == {}
