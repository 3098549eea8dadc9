"""The kubeconfig of Kubernetes clients, and the machine facts that a run gets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.cloud.container_v1.types import Cluster, ControlPlaneEndpointsConfig, MasterAuth

from cloudrec.providers.base.offers import Placement
from cloudrec.providers.gcp import access, quotas
from cloudrec.providers.gcp.offers import KNOWN
from cloudrec.transport import profile_of, profiles
from tests.unit.providers_gcp.support import layout

ENVIRONMENT = {"GOOGLE_APPLICATION_CREDENTIALS": "/a/key.json", "GOOGLE_CLOUD_REGION": "us-central1"}


def entered(**ends: Any) -> dict[str, Any]:
    cluster = Cluster(
        name="cloudrec-t",
        endpoint="203.0.113.7",
        master_auth=MasterAuth(cluster_ca_certificate="Q0E="),
        control_plane_endpoints_config=ControlPlaneEndpointsConfig(ends),
    )
    return access.kubeconfig_of(cluster, ENVIRONMENT)


def test_a_cluster_reached_by_name_uses_public_certificate_authorities() -> None:
    made = entered(
        dns_endpoint_config={"endpoint": "gke-1.us-central1.gke.goog", "allow_external_traffic": True}
    )
    assert made["clusters"] == [
        {"name": "cloudrec-t", "cluster": {"server": "https://gke-1.us-central1.gke.goog"}}
    ]


def test_a_cluster_reached_by_address_uses_its_own_certificate_authority() -> None:
    made = entered(ip_endpoints_config={"enabled": True})
    assert made["clusters"][0]["cluster"] == {
        "server": "https://203.0.113.7",
        "certificate-authority-data": "Q0E=",
    }


def test_the_kubeconfig_has_a_token_command_and_no_token() -> None:
    entry = entered()["users"][0]["user"]["exec"]
    assert [entry["command"], *entry["args"]] == [sys.executable, "-P", "-m", "cloudrec.providers.gcp.token"]
    assert entry["env"] == [{"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/a/key.json"}]


def test_without_credentials_the_token_command_prints_one_line(tmp_path: Path) -> None:
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
        ("a3-ultragpu-8g", "rdma"),
        ("a4-highgpu-8g", "rdma"),
        ("a2-highgpu-8g", "tcp"),
        ("g2-standard-4", "tcp"),
    ],
)
def test_a_profile_lists_every_gpu_adapter_of_a_machine(machine: str, fabric: str) -> None:
    hardware = KNOWN[machine]
    profile = profile_of(hardware.fabric, machine)
    assert hardware.fabric == profile.fabric == fabric
    assert profile.expects.minimum_cards == hardware.cards


PROFILES = {each.name: each for each in profiles()}


@pytest.mark.parametrize("name", KNOWN)
def test_every_type_names_a_profile_of_its_fabric_unless_none_names_it(name: str) -> None:
    hardware = KNOWN[name]
    if hardware.profile:
        assert PROFILES[hardware.profile] == profile_of(hardware.fabric, name)
        assert PROFILES[hardware.profile].expects.minimum_cards == hardware.cards


def test_manifests_get_the_network_of_each_adapter() -> None:
    answer = access.networks(layout(types=("a3-megagpu-8g",)), KNOWN["a3-megagpu-8g"], "us-central1-a")
    assert [each.interface for each in answer] == [f"eth{number}" for number in range(1, 9)]
    assert len({each.network for each in answer}) == len({each.subnetwork for each in answer}) == 8
    assert not [each for each in answer if "/" in each.network + each.subnetwork]
    assert {each.mode for each in answer} == {"NetDevice"}
    assert access.networks(layout(), KNOWN["a2-highgpu-8g"], "us-central1-a") == []


def test_rdma_cards_share_a_network_and_have_a_network_object_each() -> None:
    first, *answer = access.networks(layout(), KNOWN["a3-ultragpu-8g"], "us-central1-b")
    assert (first.interface, first.mode) == ("eth1", "NetDevice")
    assert [each.interface for each in answer] == [f"eth{number}" for number in range(2, 10)]
    assert {each.mode for each in answer} == {"RDMA"}
    assert len({each.network for each in answer}) == 1
    assert len({each.object_name for each in answer}) == 8
    assert [each.object_name for each in answer] == [each.subnetwork for each in answer]


def counted(machine: str, capacity: str, nodes: int = 2) -> dict[str, float]:
    way = Placement(instance_type=machine, zone="us-central1-a", capacity=capacity)
    return dict(quotas.needs(way, KNOWN[machine], nodes))


def test_each_capacity_type_has_its_own_quotas() -> None:
    assert counted("a2-highgpu-8g", "on-demand") == {"NVIDIA_A100_GPUS": 16, "GPUS_ALL_REGIONS": 16}
    assert counted("a2-ultragpu-1g", "spot") == {
        "PREEMPTIBLE_NVIDIA_A100_80GB_GPUS": 2,
        "PREEMPTIBLE_LOCAL_SSD_GB": 750,
        "GPUS_ALL_REGIONS": 2,
    }
    assert counted("a3-megagpu-8g", "flex-start")["PREEMPTIBLE_NVIDIA_H100_MEGA_GPUS"] == 16
    assert counted("a3-highgpu-8g", "on-demand") == {
        "GPUS-PER-GPU-FAMILY-per-project-region NVIDIA_H100": 16,
        "GPUS_ALL_REGIONS": 16,
    }
    assert counted("a3-highgpu-8g", "reservation") == {}
    assert counted("a4-highgpu-8g", "spot")["PREEMPTIBLE_NVIDIA_B200_GPUS"] == 16
    assert "GPUS-PER-GPU-FAMILY-per-project-region NVIDIA_H200" in counted("a3-ultragpu-8g", "on-demand")
