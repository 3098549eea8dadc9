"""Which cluster a resource belongs to, whether a living cluster uses it, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from google.cloud import container_v1

from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.providers.gcp.cleanup import charges
from cloudrec.providers.gcp.cleanup.belonging import Belonging, Scope
from cloudrec.providers.gcp.cleanup.inventory import INSTANCE, Row
from cloudrec.providers.gcp.layout import TAG_REGION
from cloudrec.providers.gcp.prices import shipped

ZONE, REGION = "us-central1-a", "us-central1"
FRONT = f"projects/p/zones/{ZONE}"
NETWORK = "projects/p/global/networks/cloudrec-t-us-central1"
GROUP = "gke-cloudrec-t-cpu-0a1b2c3d"
SCOPE = Scope(cluster=None, region=REGION, networks={NETWORK: "t"}, clusters=())
NODE = {"goog-k8s-cluster-name": "cloudrec-t", "goog-k8s-cluster-location": ZONE}


def row(path: str, **fields: Any) -> Row:
    given: dict[str, Any] = {
        "noun": "resource policy",
        "path": path,
        "region": REGION,
        "zone": ZONE if "/zones/" in path else "",
        "tags": {},
        "labels": {},
        "description": "",
        "links": frozenset(),
        "users": frozenset(),
        "hourly_usd": None,
        "created": None,
        "has_labels": False,
        "has_driver": False,
    }
    return Row(**{**given, **fields})


def named(name: str, **fields: Any) -> Row:
    return row(f"projects/p/regions/{REGION}/resourcePolicies/{name}", **fields)


def living(name: str = "cloudrec-t", location: str = ZONE, status: str = "RUNNING") -> Any:
    of = container_v1.Cluster.Status[status]
    groups = [f"https://www.googleapis.com/compute/v1/{FRONT}/instanceGroupManagers/{GROUP}-grp"]
    pool = container_v1.NodePool(name="cpu", instance_group_urls=groups, status="RUNNING")
    return container_v1.Cluster(name=name, location=location, status=of, node_pools=[pool])


def owner(one: Row, **scope: Any) -> str | None:
    return Belonging(replace(SCOPE, **scope), [one]).cluster_of(one)


def used(one: Row, **scope: Any) -> bool:
    return Belonging(replace(SCOPE, **{"clusters": [living()], **scope}), [one]).is_used(one)


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("gke-cloudrec-t-gpu-1", "t"),
        ("gke-cloudrec-t-2-gpu-1", "t-2"),
        ("cloudrec-t", "t"),
        ("cloudrec-t-held", "t"),
        ("gke-cloudrec-gone-gpu-1", ""),
        ("cloudrec-gone", ""),
        ("gke-theirs-gpu-1", None),
        ("theirs", None),
    ],
)
def test_a_name_shows_the_longest_known_cluster(name: str, cluster: str | None) -> None:
    networks = {NETWORK: "t", f"{NETWORK}-2": "t-2"}
    assert owner(named(name), networks=networks) == cluster
    assert owner(named(name), networks=networks, cluster="t") == ("t" if cluster == "t" else None)


def test_gke_cuts_a_long_name_of_a_cluster() -> None:
    of_pool = named("gke-cloudrec-a-long-titl-gpu-1")
    assert owner(of_pool, cluster="a-long-title-of-a-cluster") == "a-long-title-of-a-cluster"


def test_a_name_shows_nothing_where_labels_can() -> None:
    assert owner(named("cloudrec-t-data", has_labels=True)) is None
    assert owner(named("x", has_labels=True, tags={TAG_CLUSTER: "gone"})) == "gone"
    assert owner(named("x", has_labels=True, labels=NODE)) == "t"
    assert owner(named("x", labels={**NODE, "goog-k8s-cluster-name": "theirs"})) is None


def test_what_is_in_a_network_of_a_cluster_belongs_to_it_whatever_its_labels_are() -> None:
    inside = named("x", links=frozenset({NETWORK}), has_labels=True)
    assert owner(inside) == "t"
    labelled = replace(inside, tags={TAG_CLUSTER: "other"})
    assert owner(labelled) == "other"
    assert owner(labelled, cluster="t") == "t"


def test_a_tunnel_is_in_the_network_of_its_gateway() -> None:
    gateway = named("gateway", links=frozenset({NETWORK}), has_labels=True)
    tunnel = named("tunnel", links=frozenset({gateway.path}), has_labels=True)
    assert Belonging(SCOPE, [gateway, tunnel]).cluster_of(tunnel) == "t"


def test_a_global_resource_of_a_cluster_in_another_region_is_left_to_that_region() -> None:
    template = row("projects/p/global/instanceTemplates/x", region="", tags={TAG_CLUSTER: "t"})
    assert owner(template) == "t"
    assert owner(replace(template, tags={TAG_CLUSTER: "t", TAG_REGION: "us-east1"})) is None
    elsewhere = {**NODE, "goog-k8s-cluster-location": "us-east1-b"}
    assert owner(replace(template, labels=elsewhere)) is None


def test_machines_of_a_pool_are_used_and_others_with_its_labels_are_not() -> None:
    node = row(f"{FRONT}/instances/{GROUP}-x1y2", noun=INSTANCE, labels=NODE)
    stray = row(f"{FRONT}/instances/gke-cloudrec-t-old-99999999-x1y2", noun=INSTANCE, labels=NODE)
    assert (used(node), used(stray)) == (True, False)
    # While a cluster changes, GKE may not report the groups of its pools.
    assert used(stray, clusters=[living(status="RECONCILING")])
    assert not used(node, clusters=[])


def test_disks_of_machines_and_of_claims_are_used() -> None:
    node = row(f"{FRONT}/instances/{GROUP}-x1y2", noun=INSTANCE, labels=NODE)
    boot = row(f"{FRONT}/disks/{GROUP}-x1y2", noun="disk", users=frozenset({node.path}))
    claimed = row(f"{FRONT}/disks/pvc-1", noun="disk", labels=NODE)
    other = row(f"{FRONT}/disks/other", noun="disk", tags={TAG_CLUSTER: "t"})
    belongs = Belonging(replace(SCOPE, clusters=[living()]), [node, boot, claimed, other])
    assert [belongs.is_used(each) for each in (boot, claimed, other)] == [True, True, False]


def test_what_a_living_cluster_made_is_used_in_its_region_only() -> None:
    policy = named("gke-cloudrec-t-gpu-1")
    assert used(policy)
    assert not used(policy, clusters=[living(location="us-east1-b")])
    group = row(f"{FRONT}/instanceGroups/{GROUP}-grp", noun="instance group")
    assert used(group)
    assert not used(replace(group, path=f"{FRONT}/instanceGroups/gke-cloudrec-t-old-1-grp"))


@pytest.mark.parametrize(
    ("fields", "is_used"),
    [
        ({"path": f"projects/p/regions/{REGION}/forwardingRules/a{'0' * 31}"}, True),
        ({"path": f"projects/p/regions/{REGION}/forwardingRules/k8s2-tcp-0123"}, True),
        ({"description": '{"kubernetes.io/service-name": "default/web"}'}, True),
        ({"labels": {"storage_gke_io_created-by": "filestore_csi_storage_gke_io"}}, True),
        ({}, False),
    ],
)
def test_what_controllers_made_in_the_network_is_used(fields: dict[str, Any], is_used: bool) -> None:  # noqa: FBT001
    one = replace(named("theirs", links=frozenset({NETWORK})), **fields)
    assert used(one) is is_used
    assert not used(one, clusters=[])


MACHINE = {"machineType": f"{FRONT}/machineTypes/e2-standard-4", "zone": FRONT, "status": "RUNNING"}
GPUS = {**MACHINE, "machineType": f"{FRONT}/machineTypes/a2-highgpu-1g"}
RESERVED = {"count": "3", "inUseCount": "1", "instanceProperties": {"machineType": "e2-standard-4"}}


@pytest.mark.parametrize(
    ("charge", "document", "usd"),
    [
        (charges.instance, MACHINE, 0.134023),
        (charges.instance, {**MACHINE, "scheduling": {"provisioningModel": "SPOT"}}, 0.080424),
        (charges.instance, {**MACHINE, "scheduling": {"preemptible": True}}, 0.080424),
        (charges.instance, {**MACHINE, "status": "TERMINATED"}, 0.0),
        (charges.instance, {**MACHINE, "status": "SUSPENDED"}, None),
        (charges.instance, {**MACHINE, "disks": [{"type": "SCRATCH"}]}, None),
        (charges.instance, {**MACHINE, "guestAccelerators": [{}]}, None),
        (charges.instance, {**MACHINE, "machineType": "x9-standard-4"}, None),
        (charges.instance, {**GPUS, "guestAccelerators": [{}]}, 3.67339),
        (charges.reservation, {"specificReservation": RESERVED}, 2 * 0.134023),
        (charges.disk, {"type": "x/pd-ssd", "sizeGb": "10"}, 10 * 0.17 / 730),
        (charges.disk, {"type": "x/pd-ssd", "sizeGb": "10", "replicaZones": ["a", "b"]}, None),
        (charges.disk, {"type": "x/hyperdisk-extreme", "sizeGb": "10"}, None),
        (charges.snapshot, {"storageLocations": [REGION], "storageBytes": 2**30}, 0.05 / 730),
        (charges.snapshot, {"storageLocations": ["us"], "storageBytes": 2**30}, None),
        (charges.snapshot, {"storageLocations": [REGION], "snapshotType": "ARCHIVE"}, None),
        (charges.address, {"addressType": "EXTERNAL", "region": REGION}, 0.005),
        (charges.address, {"addressType": "EXTERNAL"}, None),
        (charges.address, {"addressType": "INTERNAL", "region": REGION}, 0.0),
        (charges.forwarding_rule, {"region": REGION}, 0.025),
        (charges.forwarding_rule, {}, None),
        (charges.router, {"nats": [{}, {}]}, 0.088),
        (charges.router, {}, 0.0),
    ],
)
def test_prices_are_those_of_the_table_and_unknown_without_a_row(
    charge: charges.Charge, document: dict[str, Any], usd: float | None
) -> None:
    assert charge(shipped().within(REGION), document) == pytest.approx(usd)
