"""What a first `up` on a real project depends on, and what Google accepts without any effect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.cloud.container_v1 import MaintenanceExclusionOptions, MaintenancePolicy, TimeWindow

from cloudrec.home import Home
from cloudrec.providers.gcp import access, preflight, zones
from cloudrec.providers.gcp.api import apis
from cloudrec.providers.gcp.cluster import cluster_model
from cloudrec.providers.gcp.nodes import cpu_nodes
from cloudrec.providers.gcp.storage import lustre, storage
from tests.contract.gcp.support import WHOLE, Site, whole
from tests.contract.gcp.test_cluster_side import CLUSTER, had, tried
from tests.sandbox.gcp.support import Gcp as Cloud

ZONES = ("us-central1-a", "us-central1-b")
KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
EVERYWHERE = "GPUS_ALL_REGIONS"


def effects(cloud: Cloud) -> dict[str, list[str]]:
    found: dict[str, list[str]] = cloud.control()["effects"]
    return found


@pytest.mark.parametrize(
    ("instance_type", "capacity"),
    [("a3-highgpu-8g", "on-demand"), ("a2-highgpu-8g", "on-demand"), ("g2-standard-4", "spot")],
)
def test_a_fresh_project_is_refused_with_the_quota_of_all_gpus(
    cloud: Cloud, tmp_path: Path, instance_type: str, capacity: str
) -> None:
    cloud.control(quotas={f"global/{EVERYWHERE}": 0})
    asked = {"instance_types": [instance_type], "capacity": capacity, "nodes": 2}
    site = whole(cloud, tmp_path, zones=ZONES[:1], **asked)
    found = preflight.findings(site.gcp, site.layout())
    (told,) = [each for each in found if EVERYWHERE in each.check]
    gpus = 2 * site.layout().hardware[instance_type].gpus
    assert (told.ok, told.blocks, told.found, told.needed) == (
        False,
        True,
        "0, of which 0 are used by others",
        str(gpus),
    )
    assert f"request {gpus} of GPUs (all regions)" in told.remedy


def test_an_account_for_all_nodes_without_its_roles_is_a_warning(cloud: Cloud, tmp_path: Path) -> None:
    project = "/v1/projects/sandbox-project/serviceAccounts"
    assert cloud.rest("POST", project, {"accountId": "cloudrec-nodes"})[0] == 200
    cloud.advance(60)
    site = whole(cloud, tmp_path, zones=ZONES[:1])
    (told,) = [each for each in preflight.findings(site.gcp, site.layout()) if each.check == "node account"]
    assert (told.ok, told.blocks) == (False, False)
    assert "lacks roles/logging.logWriter" in told.found
    assert "roles/artifactregistry.reader" in told.found


@pytest.mark.parametrize(
    ("asked", "home", "gpu"),
    [
        (("us-central1-ai1a",), "us-central1-a", ("us-central1-ai1a",)),
        (("us-central1-ai1a", "us-central1-b"), "us-central1-b", ("us-central1-ai1a", "us-central1-b")),
        (("us-central1-ai1d",), "us-central1-a", ("us-central1-ai1d",)),
        ((), "us-central1-a", ("us-central1-a", "us-central1-b", "us-central1-ai1a")),
    ],
)
def test_an_ai_zone_is_for_gpu_nodes_alone(
    cloud: Cloud, tmp_path: Path, asked: tuple[str, ...], home: str, gpu: tuple[str, ...]
) -> None:
    site = whole(cloud, tmp_path, zones=asked, settings={"regional": True})
    # A project sees them once its owner turns them on; the stand-in has none.
    ai = ("us-central1-ai1a", "us-central1-ai1d")
    vars(site.gcp)["zones"] = tuple(sorted((*ZONES, *ai)))
    site.gcp.offered["a2-highgpu-8g"] = ("us-central1-a", ai[0], "us-central1-b")
    chosen = zones.choose(site.gcp, site.cluster, ("a2-highgpu-8g",))
    assert (chosen.home, chosen.gpu) == (home, gpu)
    layout = replace(site.layout(), home_zone=chosen.home, gpu_zones=chosen.gpu)
    assert cpu_nodes.properties(layout).zones == ([zone for zone in gpu if zone in ZONES] or [home])


@pytest.mark.parametrize("operations", [1, 4])
def test_an_exact_quota_allows_another_zone_after_a_half_filled_one(
    cloud: Cloud, tmp_path: Path, operations: int
) -> None:
    cloud.control(
        gke_pool_operations=operations,
        quotas={f"global/{EVERYWHERE}": 16, "us-central1/NVIDIA_A100_GPUS": 16},
        capacity={f"a2-highgpu-8g/{ZONES[0]}/on-demand": 1},
        durations={"gke-pool-deletion": 600},
    )
    site = whole(cloud, tmp_path, zones=ZONES, nodes=2, settings={"compact": False})
    site.up()
    assert had(site) == [f"a2-highgpu-8g-{ZONES[1]}-on-demand"]
    assert "GCE_STOCKOUT" in tried(site)[f"a2-highgpu-8g-{ZONES[0]}-on-demand"]
    assert site.planned() == {}


def test_several_nodes_of_a_type_without_a_fabric_profile_are_refused(cloud: Cloud, tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "instance_types": ["a3-highgpu-4g"],
        "zones": ZONES[1:],
        "capacity": "spot",
    }
    two = whole(cloud, tmp_path, nodes=2, **asked)
    (told,) = [
        each for each in preflight.findings(two.gcp, two.layout()) if each.check.startswith("fabric of")
    ]
    assert (told.ok, told.blocks) == (False, True)
    assert "--nodes 1" in told.remedy
    one = whole(cloud, tmp_path, **asked)
    assert not [each for each in preflight.findings(one.gcp, one.layout()) if not each.ok and each.blocks]
    one.up()
    assert had(one) == [f"a3-highgpu-4g-{ZONES[1]}-spot"]


def test_images_are_streamed_though_the_project_had_not_enabled_that(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(apis={"containerfilesystem.googleapis.com": False})
    whole(cloud, tmp_path, zones=ZONES[:1]).up()
    cloud.advance(600)
    assert sorted(pool.rpartition("/")[2] for pool in effects(cloud)["image_streaming"]) == [
        "cpu",
        "gpu-a2-highgpu-8g-a-od",
    ]


def test_nodes_can_mount_the_file_system(cloud: Cloud, tmp_path: Path) -> None:
    given: dict[str, Any] = {"zones": ZONES[:1], "settings": {"lustre_gib": 36000}}
    site = Site(cloud, tmp_path, parts=(*WHOLE, lustre), **given)
    site.up()
    assert len(effects(cloud)["lustre"]) == 1
    rule = "cloudrec-t-us-central1-lustre"
    closed = {"allowed": [{"I_p_protocol": "tcp", "ports": ["22"]}]}
    cloud.compute("Firewalls").patch_unary(project="sandbox-project", firewall=rule, firewall_resource=closed)
    cloud.advance(60)
    assert effects(cloud)["lustre"] == []
    assert list(site.planned()) == ["firewall/t-lustre"]
    site.up()
    assert len(effects(cloud)["lustre"]) == 1
    site.down()


def test_google_upgrades_no_nodes_while_a_cluster_is_used(cloud: Cloud, tmp_path: Path) -> None:
    site = whole(cloud, tmp_path, zones=ZONES[:1])
    site.up()
    policy = cloud.gke.get_cluster(name=CLUSTER).maintenance_policy
    window = policy.window.maintenance_exclusions[cluster_model.EXCLUSION]
    scope = MaintenanceExclusionOptions.Scope.NO_MINOR_OR_NODE_UPGRADES
    assert window.maintenance_exclusion_options.scope == scope
    # A user replaces it by another exclusion.
    theirs = MaintenancePolicy(resource_version=policy.resource_version)
    theirs.window.maintenance_exclusions["theirs"] = TimeWindow(
        start_time=window.start_time,
        end_time=window.end_time,
        maintenance_exclusion_options=MaintenanceExclusionOptions(
            scope=MaintenanceExclusionOptions.Scope.NO_MINOR_UPGRADES
        ),
    )
    cloud.gke.set_maintenance_policy(request={"name": CLUSTER, "maintenance_policy": theirs})
    cloud.advance(600)
    assert list(site.planned()) == ["cluster/t"]
    site.up()
    kept = cloud.gke.get_cluster(name=CLUSTER).maintenance_policy.window.maintenance_exclusions
    assert set(kept) == {"theirs", cluster_model.EXCLUSION}
    assert site.planned() == {}


def test_runs_get_the_time_that_the_pool_gives_after_a_notice(cloud: Cloud, tmp_path: Path) -> None:
    site = whole(cloud, tmp_path, zones=ZONES[:1], capacity="spot")
    site.up()
    (pool,) = [each for each in cloud.gke.list_node_pools(parent=CLUSTER).node_pools if each.name != "cpu"]
    kubelet = pool.config.kubelet_config
    told = access.of(site.layout(), site.gcp, Home(root=tmp_path / "home"), cloud.env).target
    grace = kubelet.shutdown_grace_period_seconds - kubelet.shutdown_grace_period_critical_pods_seconds
    assert told.notice_s == grace == 105


def test_a_bucket_gives_up_its_key(cloud: Cloud, tmp_path: Path) -> None:
    Site(cloud, tmp_path, parts=(apis, storage), settings={"kms_key": KEY}).up()
    site = Site(cloud, tmp_path, parts=(apis, storage))
    assert list(site.planned()) == ["bucket/t"]
    site.up()
    assert site.planned() == {}


def test_secrets_of_a_cluster_give_up_their_key(cloud: Cloud, tmp_path: Path) -> None:
    whole(cloud, tmp_path, zones=ZONES[:1], settings={"kms_key": KEY}).up()
    site = whole(cloud, tmp_path, zones=ZONES[:1])
    assert list(site.planned()) == ["cluster/t"]
    site.up()
    assert site.planned() == {}
