"""Managed Lustre: its operations and refusals, and the connection that it needs."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud.compute_v1 import Address, Allowed, Firewall
from google.cloud.lustre_v1 import Instance

from tests.sandbox.gcp.support import NUMBER, PROJECT, ZONE, Gcp, refused
from tests.sandbox.gcp.support_gke import network

PARENT = f"projects/{PROJECT}/locations/{ZONE}"
NET = f"projects/{PROJECT}/global/networks/net"
ID = "11111111-2222-3333-4444-555555555555"
SERVICE = "/v1/services/servicenetworking.googleapis.com/connections"


def wish(**more: Any) -> Instance:
    document = {
        "filesystem": "data",
        "capacity_gib": 18_000,
        "per_unit_storage_throughput": 500,
        "network": NET,
        "labels": {"made-by": "tests"},
    }
    return Instance({**document, **more})


def create(gcp: Gcp, name: str = "fs", request_id: str = "", **more: Any) -> str:
    request = {"parent": PARENT, "instance_id": name, "instance": wish(**more), "request_id": request_id}
    return str(gcp.lustre.create_instance(request=request, retry=None).operation.name)


def operation(gcp: Gcp, name: str) -> Any:
    return gcp.lustre.get_operation(request={"name": name})


def connect(gcp: Gcp) -> None:
    """A range of addresses in the network, and the connection with it."""
    network(gcp)
    reserved = Address(
        name="range", purpose="VPC_PEERING", address_type="INTERNAL", prefix_length=20, network=NET
    )
    gcp.compute("GlobalAddresses").insert_unary(project=PROJECT, address_resource=reserved)
    gcp.advance(60)
    body = {"network": NET.replace(PROJECT, NUMBER), "reservedPeeringRanges": ["range"]}
    status, begun = gcp.rest("POST", SERVICE, body)
    assert status == 200, begun
    gcp.advance(61)
    assert gcp.rest("GET", f"/v1/{begun['name']}")[1]["done"]


@pytest.fixture
def connected(gcp: Gcp) -> Gcp:
    connect(gcp)
    return gcp


def test_an_instance_is_creating_then_active_then_deleted(connected: Gcp) -> None:
    name = create(connected)
    found = connected.lustre.get_instance(name=f"{PARENT}/instances/fs")
    assert (found.state, found.mount_point, operation(connected, name).done) == (
        Instance.State.CREATING,
        "",
        False,
    )
    connected.advance(901)
    assert operation(connected, name).done
    found = connected.lustre.get_instance(name=f"{PARENT}/instances/fs")
    assert found.state == Instance.State.ACTIVE
    assert found.mount_point.endswith("@tcp:/data")
    with refused("ALREADY_EXISTS"):
        create(connected)
    everywhere = f"projects/{PROJECT}/locations/-"
    assert [each.name for each in connected.lustre.list_instances(parent=everywhere)] == [found.name]
    ending = connected.lustre.delete_instance(name=found.name).operation.name
    assert connected.lustre.get_instance(name=found.name).state == Instance.State.DELETING
    with refused("FAILED_PRECONDITION", "DELETING"):
        connected.lustre.delete_instance(name=found.name, retry=None)
    connected.advance(301)
    assert operation(connected, ending).done
    with refused("NOT_FOUND"):
        connected.lustre.get_instance(name=found.name)


def test_a_repeated_request_returns_its_operation_for_an_hour(connected: Gcp) -> None:
    first = create(connected, request_id=ID)
    assert create(connected, request_id=ID) == first
    with refused("INVALID_ARGUMENT", "another request"):
        create(connected, "other", request_id=ID)
    connected.advance(3601)
    with refused("ALREADY_EXISTS"):
        create(connected, request_id=ID)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"filesystem": "toolongname"}, "8 at most"),
        ({"filesystem": "da-ta"}, "filesystem"),
        ({"per_unit_storage_throughput": 300}, "one of 0, 125, 250, 500, 1000"),
        ({"capacity_gib": 20_000}, "in steps of 18000"),
        ({"capacity_gib": 9_000}, "18000 to"),
        ({"per_unit_storage_throughput": 0}, "in steps of 472000"),
        ({"network": "net"}, "projects/PROJECT/global/networks/NAME"),
        ({"network": f"projects/{PROJECT}/global/networks/none"}, "was not found"),
        ({"labels": {"Upper": "x"}}, "Label keys"),
    ],
)
def test_invalid_requests_are_refused_at_once(connected: Gcp, change: dict[str, Any], words: str) -> None:
    with refused("INVALID_ARGUMENT", words):
        create(connected, **change)
    for wrong in ("no-uuid", "00000000-0000-0000-0000-000000000000"):
        with refused("INVALID_ARGUMENT", "request_id"):
            create(connected, request_id=wrong)


def test_an_exceeded_hard_quota_is_refused_at_once(connected: Gcp) -> None:
    connected.control(lustre={"quota_gib": 20_000})
    create(connected)
    with refused("RESOURCE_EXHAUSTED", "Quota limit"):
        create(connected, "second")


def test_missing_capacity_in_a_zone_fails_the_operation(connected: Gcp) -> None:
    connected.control(lustre={"stock_gib": {ZONE: 0}})
    name = create(connected)
    connected.advance(301)
    failed = operation(connected, name)
    assert (failed.done, failed.error.code) == (True, 8)
    assert connected.state("lustre") == []


def test_a_network_without_a_peering_fails_the_operation(gcp: Gcp) -> None:
    network(gcp)
    name = create(gcp)
    gcp.advance(301)
    failed = operation(gcp, name)
    assert (failed.done, failed.error.code) == (True, 9)
    assert "private connection" in failed.error.message


def test_a_peering_cannot_be_deleted_while_in_use_or_shortly_after(connected: Gcp) -> None:
    def part() -> dict[str, Any]:
        body = {"consumerNetwork": NET.replace(PROJECT, NUMBER)}
        _, begun = connected.rest("POST", f"{SERVICE}/servicenetworking-googleapis-com", body)
        connected.advance(61)
        document: dict[str, Any] = connected.rest("GET", f"/v1/{begun['name']}")[1]
        return document

    create(connected)
    connected.advance(901)
    assert (part()["error"]["code"], "still using" in part()["error"]["message"]) == (9, True)
    connected.lustre.delete_instance(name=f"{PARENT}/instances/fs")
    connected.advance(301)
    assert part()["error"]["code"] == 9
    connected.advance(301)
    assert "error" not in part()
    query = f"?network={NET.replace(PROJECT, NUMBER)}"
    assert connected.rest("GET", SERVICE + query) == (200, {})


def test_an_instance_can_grow_and_not_shrink(connected: Gcp) -> None:
    create(connected)
    connected.advance(901)
    name = f"{PARENT}/instances/fs"

    def resize(gib: int) -> str:
        request = {
            "instance": {"name": name, "capacity_gib": gib},
            "update_mask": {"paths": ["capacity_gib"]},
        }
        return str(connected.lustre.update_instance(request=request, retry=None).operation.name)

    begun = resize(36_000)
    assert connected.lustre.get_instance(name=name).state == Instance.State.UPDATING
    connected.advance(301)
    assert operation(connected, begun).done
    with refused("INVALID_ARGUMENT", "cannot shrink"):
        resize(18_000)
    assert connected.lustre.get_instance(name=name).capacity_gib == 36_000


@pytest.mark.parametrize(
    ("ports", "sources", "mountable"),
    [
        (["988", "6988"], None, True),
        (["900-7000"], None, True),
        (["988"], None, False),
        (["988", "6988"], "192.0.2.0/24", False),
    ],
)
def test_machines_mount_an_instance_only_if_a_rule_admits_it(
    connected: Gcp, *, ports: list[str], sources: str | None, mountable: bool
) -> None:
    create(connected)
    connected.advance(901)
    path = f"{PARENT}/instances/fs"
    assert connected.control()["effects"]["lustre"] == []  # ACTIVE, but no rule admits its servers
    address = connected.lustre.get_instance(name=path).mount_point.partition("@")[0]
    rule = Firewall(
        name="lustre",
        network=NET,
        direction="INGRESS",
        source_ranges=[sources or f"{address}/32"],
        allowed=[Allowed(I_p_protocol="tcp", ports=ports)],
    )
    connected.compute("Firewalls").insert_unary(project=PROJECT, firewall_resource=rule)
    connected.advance(60)
    assert connected.control()["effects"]["lustre"] == ([path] if mountable else [])


def imported(gcp: Gcp, source: str, path: str = "/") -> Any:
    request = {
        "name": f"{PARENT}/instances/fs",
        "gcs_path": {"uri": source},
        "lustre_path": {"path": path},
    }
    name = gcp.lustre.import_data(request=request, retry=None).operation.name
    gcp.advance(601)
    return operation(gcp, name)


def test_an_import_needs_a_folder_and_the_agents_access_to_the_bucket(connected: Gcp) -> None:
    with refused("NOT_FOUND"):
        imported(connected, "gs://files/data/")
    create(connected)
    with refused("FAILED_PRECONDITION", "must be ACTIVE"):
        imported(connected, "gs://files/data/")
    connected.advance(901)
    with refused("INVALID_ARGUMENT", "must end with '/'"):
        imported(connected, "gs://files/data")
    with refused("INVALID_ARGUMENT", "does not exist"):
        imported(connected, "gs://files/data/", "/other")
    assert connected.rest("POST", f"/storage/v1/b?project={PROJECT}", {"name": "files"})[0] == 200
    assert "storage.objects.list" in imported(connected, "gs://files/data/").error.message
    path = "/storage/v1/b/files/iam"
    policy = connected.rest("GET", path)[1]
    agent = f"serviceAccount:service-{NUMBER}@gcp-sa-lustre.iam.gserviceaccount.com"
    policy["bindings"].append({"role": "roles/storage.objectViewer", "members": [agent]})
    status, answer = connected.rest("PUT", path, policy)
    assert status == 200, answer
    done = imported(connected, "gs://files/data/")
    assert done.done
    assert not done.error.message
    assert connected.control()["lustre"]["imported"] == {f"{PARENT}/instances/fs": ["gs://files/data/"]}
