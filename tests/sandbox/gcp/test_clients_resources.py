"""What clients make beside clusters: machines, groups, copies, tunnels, other services, and their search."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.gcp.support import PROJECT, REGION, ZONE, Gcp
from tests.sandbox.gcp.support_compute import Compute, turned_down

FRONT = f"projects/{PROJECT}/zones/{ZONE}"
BOOT = {"boot": True, "auto_delete": True, "initialize_params": {"disk_size_gb": 20}}
ASSETS = f"/v1/projects/{PROJECT}:searchAllResources"
SECRETS, JOBS = f"/v1/projects/{PROJECT}/secrets", f"/v1/projects/{PROJECT}/locations/{REGION}/jobs"


@pytest.fixture
def compute(gcp: Gcp) -> Compute:
    return Compute(gcp)


def machine(compute: Compute, **more: Any) -> Any:
    card = {"subnetwork": f"regions/{REGION}/subnetworks/sub"}
    given = {"name": "one", "machine_type": "e2-standard-4", "disks": [BOOT], "network_interfaces": [card]}
    return compute.gcp.compute("Instances").insert_unary(
        project=PROJECT, zone=ZONE, instance_resource={**given, **more}
    )


def network(compute: Compute) -> None:
    assert compute.done(compute.insert_network()) == []
    body = {"name": "sub", "network": "global/networks/net", "ip_cidr_range": "10.0.0.0/20"}
    begun = compute.subnets.insert_unary(project=PROJECT, region=REGION, subnetwork_resource=body)
    assert compute.done(begun) == []


def test_an_instance_has_a_boot_disk_that_is_deleted_with_it(compute: Compute) -> None:
    network(compute)
    assert compute.done(machine(compute)) == []
    instances, disks = compute.gcp.compute("Instances"), compute.gcp.compute("Disks")
    made = instances.get(project=PROJECT, zone=ZONE, instance="one")
    assert (made.status, made.network_interfaces[0].network.rpartition("/")[2]) == ("RUNNING", "net")
    (disk,) = disks.list(project=PROJECT, zone=ZONE)
    assert (disk.name, disk.size_gb, disk.users) == ("one", 20, [made.self_link])
    assert compute.done(instances.delete_unary(project=PROJECT, zone=ZONE, instance="one")) == []
    assert list(disks.list(project=PROJECT, zone=ZONE)) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"machine_type": "none-1"}, "resource.machineType"),
        ({"disks": []}, "boot disk"),
        ({"network_interfaces": []}, "At least one network interface"),
        ({"network_interfaces": [{"network": "global/networks/net"}]}, "must specify a subnet"),
        ({"network_interfaces": [{"subnetwork": f"regions/{REGION}/subnetworks/no"}]}, "cannot be found"),
    ],
)
def test_an_incomplete_instance_is_refused(compute: Compute, more: dict[str, Any], words: str) -> None:
    network(compute)
    with turned_down(400, "invalid", words):
        machine(compute, **more)


def test_an_instance_without_capacity_does_not_stay(compute: Compute) -> None:
    network(compute)
    compute.gcp.control(capacity={f"e2-standard-4/{ZONE}/on-demand": 0})
    [(code, _)] = compute.done(machine(compute))
    assert code == "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    assert compute.gcp.state("compute:instances:") == []


def test_a_managed_group_needs_a_template_and_brings_a_group(compute: Compute) -> None:
    managers, groups = compute.gcp.compute("InstanceGroupManagers"), compute.gcp.compute("InstanceGroups")
    group: dict[str, Any] = {"name": "g", "target_size": 0}
    with turned_down(400, "invalid", "instanceTemplate"):
        managers.insert_unary(project=PROJECT, zone=ZONE, instance_group_manager_resource=group)
    properties = {
        "machine_type": "e2-standard-4",
        "disks": [BOOT],
        "network_interfaces": [{"network": "global/networks/net"}],
    }
    templates = compute.gcp.compute("InstanceTemplates")
    with turned_down(400, "invalid", "properties.disks"):
        body: dict[str, Any] = {"name": "t", "properties": {**properties, "disks": []}}
        templates.insert_unary(project=PROJECT, instance_template_resource=body)
    body = {"name": "t", "properties": properties}
    assert compute.done(templates.insert_unary(project=PROJECT, instance_template_resource=body)) == []
    group["instance_template"] = "global/instanceTemplates/t"
    begun = managers.insert_unary(project=PROJECT, zone=ZONE, instance_group_manager_resource=group)
    assert compute.done(begun) == []
    assert [each.name for each in groups.list(project=PROJECT, zone=ZONE)] == ["g"]
    found = dict(managers.aggregated_list(project=PROJECT))
    assert [each.name for each in found[f"zones/{ZONE}"].instance_group_managers] == ["g"]
    assert found["global"].warning.code == "NO_RESULTS_ON_PAGE"


def test_a_regional_disk_has_two_zones_and_is_in_the_list_of_all_disks(compute: Compute) -> None:
    disks = compute.gcp.compute("RegionDisks")
    body: dict[str, Any] = {"name": "both", "size_gb": 10, "replica_zones": [f"zones/{ZONE}"]}
    with turned_down(400, "invalid", "replicaZones"):
        disks.insert_unary(project=PROJECT, region=REGION, disk_resource=body)
    body["replica_zones"].append(f"zones/{REGION}-b")
    assert compute.done(disks.insert_unary(project=PROJECT, region=REGION, disk_resource=body)) == []
    found = dict(compute.gcp.compute("Disks").aggregated_list(project=PROJECT))
    assert [each.name for each in found[f"regions/{REGION}"].disks] == ["both"]
    asked = {call["iam_action"] for call in compute.gcp.calls() if call["action"].startswith("regionDisks")}
    assert asked == {"compute.disks.create"}


def test_a_snapshot_outlives_its_disk(compute: Compute) -> None:
    disks, snapshots = compute.gcp.compute("Disks"), compute.gcp.compute("Snapshots")
    body = {"name": "d", "size_gb": 10}
    assert compute.done(disks.insert_unary(project=PROJECT, zone=ZONE, disk_resource=body)) == []
    with turned_down(400, "required", "sourceDisk"):
        snapshots.insert_unary(project=PROJECT, snapshot_resource={"name": "s"})
    source = {"name": "s", "source_disk": f"{FRONT}/disks/d"}
    assert compute.done(snapshots.insert_unary(project=PROJECT, snapshot_resource=source)) == []
    assert compute.done(disks.delete_unary(project=PROJECT, zone=ZONE, disk="d")) == []
    (kept,) = snapshots.list(project=PROJECT)
    assert (kept.disk_size_gb, list(kept.storage_locations)) == (10, [REGION])


def test_a_tunnel_needs_one_gateway_and_shows_no_secret(compute: Compute) -> None:
    network(compute)
    gateways, tunnels = compute.gcp.compute("VpnGateways"), compute.gcp.compute("VpnTunnels")
    with turned_down(400, "required", "network"):
        gateways.insert_unary(project=PROJECT, region=REGION, vpn_gateway_resource={"name": "g"})
    body = {"name": "g", "network": "global/networks/net"}
    assert (
        compute.done(gateways.insert_unary(project=PROJECT, region=REGION, vpn_gateway_resource=body)) == []
    )
    tunnel: dict[str, Any] = {"name": "t", "shared_secret": "s"}
    with turned_down(400, "required", "vpnGateway"):
        tunnels.insert_unary(project=PROJECT, region=REGION, vpn_tunnel_resource=tunnel)
    tunnel["vpn_gateway"] = f"regions/{REGION}/vpnGateways/g"
    with turned_down(400, "required", "router"):
        tunnels.insert_unary(project=PROJECT, region=REGION, vpn_tunnel_resource=tunnel)
    body = {"name": "r", "network": "global/networks/net"}
    begun = compute.routers.insert_unary(project=PROJECT, region=REGION, router_resource=body)
    assert compute.done(begun) == []
    tunnel["router"] = f"regions/{REGION}/routers/r"
    assert (
        compute.done(tunnels.insert_unary(project=PROJECT, region=REGION, vpn_tunnel_resource=tunnel)) == []
    )
    (made,) = tunnels.list(project=PROJECT, region=REGION)
    assert (made.shared_secret, bool(made.shared_secret_hash)) == ("*************", True)


@pytest.mark.parametrize("url", [SECRETS, JOBS, f"{ASSETS}?query=labels.a:*"])
def test_an_api_that_a_new_project_lacks_must_be_enabled(gcp: Gcp, url: str) -> None:
    status, told = gcp.rest("GET", url)
    assert (status, told["error"]["details"][0]["reason"]) == (403, "SERVICE_DISABLED")


def test_scheduler_lists_one_location_and_names_jobs_by_their_path(gcp: Gcp) -> None:
    gcp.control(apis={"cloudscheduler.googleapis.com": True})
    assert gcp.rest("POST", JOBS, {"name": "j", "schedule": "* * * * *"})[0] == 400
    path = JOBS.removeprefix("/v1/")
    target = {"uri": "https://example.com/"}
    wish = {"name": f"{path}/j", "schedule": "* * * * *", "httpTarget": target}
    assert gcp.rest("POST", JOBS, wish)[0] == 200
    assert [job["name"] for job in gcp.rest("GET", JOBS)[1]["jobs"]] == [f"{path}/j"]
    assert gcp.rest("GET", JOBS.replace(REGION, "-"))[0] == 400


def test_a_file_system_is_created_by_an_operation_and_listed_in_all_locations(gcp: Gcp) -> None:
    gcp.control(apis={"file.googleapis.com": True})
    parent = f"/v1/projects/{PROJECT}/locations/{ZONE}"
    wish = {"tier": "BASIC_HDD", "fileShares": [{}], "networks": [{}]}
    url = f"{parent}/instances?instanceId=fs"
    assert gcp.rest("POST", url, {**wish, "size": 1})[0] == 400
    status, begun = gcp.rest("POST", url, wish)
    assert (status, begun.get("done", False)) == (200, False)
    gcp.advance(300)
    assert gcp.rest("GET", f"/v1/{begun['name']}")[1]["done"]
    (made,) = gcp.rest("GET", f"/v1/projects/{PROJECT}/locations/-/instances")[1]["instances"]
    assert (made["name"], made["state"]) == (f"{parent.removeprefix('/v1/')}/instances/fs", "READY")


def test_the_search_of_assets_finds_labels_of_every_type(gcp: Gcp) -> None:
    hosts = [f"{name}.googleapis.com" for name in ("cloudasset", "secretmanager")]
    gcp.control(apis=dict.fromkeys(hosts, True))
    labels = {"team": "one-two"}
    wish = {"replication": {"automatic": {}}, "labels": labels}
    assert gcp.rest("POST", f"{SECRETS}?secretId=mine", wish)[0] == 200
    other = {
        "assetType": "redis.googleapis.com/Instance",
        "name": "//x/y",
        "location": REGION,
        "labels": labels,
    }
    gcp.control(assets=[other])
    for query, count in {
        "labels.team:*": 2,
        "labels.team:two": 2,
        "labels.team:t": 0,
        "labels.a:*": 0,
    }.items():
        found = gcp.rest("GET", f"{ASSETS}?query={query}")[1]["results"]
        assert len(found) == count, query
    assert gcp.rest("GET", f"{ASSETS}?query=team")[0] == 400
    asked = {call["iam_action"] for call in gcp.calls() if call["service"] == "cloudasset"}
    assert asked == {"cloudasset.assets.searchAllResources"}
