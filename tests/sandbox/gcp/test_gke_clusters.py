"""Clusters: one operation at a time, failed operations, and remaining resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.cloud.container_v1 import Cluster, ClusterUpdate, Operation, ReleaseChannel, StatusCondition

from tests.sandbox.gcp.support import PROJECT, REGION, ZONE, Gcp, refused
from tests.sandbox.gcp.support_gke import (
    PARENT,
    PATH,
    STEP_S,
    done,
    link,
    network,
    operation,
    pool,
    ready,
    resize,
    subnetwork,
    wish,
)

Status, Kind = Cluster.Status, Operation.Type


@pytest.fixture
def net(gcp: Gcp) -> Gcp:
    network(gcp)
    subnetwork(gcp)
    return gcp


def test_a_cluster_is_created_in_steps(net: Gcp) -> None:
    begun = net.gke.create_cluster(parent=PARENT, cluster=wish())
    assert (begun.operation_type, begun.target_link) == (Kind.CREATE_CLUSTER, link(PATH))
    cluster = net.gke.get_cluster(name=PATH)
    assert (cluster.status, cluster.endpoint) == (Status.PROVISIONING, "")
    assert cluster.control_plane_endpoints_config.dns_endpoint_config.endpoint == ""
    net.advance(361)
    assert operation(net, begun).status == Operation.Status.DONE
    cluster = net.gke.get_cluster(name=PATH)
    assert cluster.status == Status.RECONCILING  # Google resizes what it has just made
    assert cluster.control_plane_endpoints_config.dns_endpoint_config.endpoint.endswith(f".{REGION}.gke.goog")
    assert cluster.current_master_version == "1.35.8-gke.1225000"
    assert cluster.master_auth.cluster_ca_certificate
    assert (cluster.current_node_count, cluster.location) == (1, ZONE)
    net.advance(61)
    assert net.gke.get_cluster(name=PATH).status == Status.RUNNING
    listed = net.gke.list_operations(parent=f"projects/{PROJECT}/locations/-").operations
    assert [each.operation_type for each in listed] == [Kind.CREATE_CLUSTER, Kind.RESIZE_CLUSTER]


def test_a_name_is_in_use_until_the_cluster_is_deleted(gcp: Gcp) -> None:
    ready(gcp)
    with refused("ALREADY_EXISTS", f"Already exists: {PATH}"):
        gcp.gke.create_cluster(parent=PARENT, cluster=wish())
    begun = gcp.gke.delete_cluster(name=PATH)
    assert gcp.gke.get_cluster(name=PATH).status == Status.STOPPING
    assert f"container:clusters:{PATH}" in gcp.pending()
    with refused("ALREADY_EXISTS"):
        gcp.gke.create_cluster(parent=PARENT, cluster=wish())
    done(gcp, begun)
    with refused("NOT_FOUND", PATH):
        gcp.gke.get_cluster(name=PATH)
    gcp.gke.create_cluster(parent=PARENT, cluster=wish())


def test_a_creation_with_a_lost_response_cannot_be_repeated(net: Gcp) -> None:
    net.control(faults=[{"kind": "lost", "action": "CreateCluster"}])
    with refused("UNAVAILABLE"):
        net.gke.create_cluster(parent=PARENT, cluster=wish())
    with refused("ALREADY_EXISTS"):
        net.gke.create_cluster(parent=PARENT, cluster=wish())
    (begun,) = net.gke.list_operations(parent=PARENT).operations
    assert begun.target_link == link(PATH)
    done(net, begun)


def test_a_cluster_that_is_being_created_cannot_be_deleted(net: Gcp) -> None:
    net.gke.create_cluster(parent=PARENT, cluster=wish())
    with refused(
        "FAILED_PRECONDITION", "is currently creating cluster one", reason="CLUSTER_ALREADY_HAS_OPERATION"
    ):
        net.gke.delete_cluster(name=PATH)
    net.advance(361)
    with refused("FAILED_PRECONDITION", "Please wait and try again once it is done"):
        net.gke.create_node_pool(parent=PATH, node_pool=pool())
    net.advance(61)
    net.gke.delete_cluster(name=PATH)


def test_an_automatic_upgrade_blocks_other_operations(gcp: Gcp) -> None:
    ready(gcp)
    gcp.control(gke_upgrade={"cluster": "one"})
    assert gcp.gke.get_cluster(name=PATH).status == Status.RECONCILING
    changes: tuple[Callable[[], object], ...] = (
        lambda: gcp.gke.create_node_pool(parent=PATH, node_pool=pool()),
        lambda: resize(gcp, f"{PATH}/nodePools/cpu", 2),
        lambda: gcp.gke.delete_cluster(name=PATH),
    )
    for change in changes:
        with refused("FAILED_PRECONDITION", "is currently upgrading cluster one"):
            change()
    gcp.advance(601)
    assert gcp.gke.get_cluster(name=PATH).status == Status.RUNNING


def test_ranges_in_use_fail_the_operation(gcp: Gcp) -> None:
    ready(gcp)
    taken = {
        "use_ip_aliases": True,
        "cluster_secondary_range_name": "pods-two",
        "services_secondary_range_name": "services-one",
    }
    begun = gcp.gke.create_cluster(parent=PARENT, cluster=wish("two", ip_allocation_policy=taken))
    gcp.advance(61)
    failed = operation(gcp, begun)
    assert failed.status == Operation.Status.DONE
    assert 'Requested CIDR of range "services-one" is not available' in failed.status_message
    assert failed.error.message == failed.status_message
    cluster = gcp.gke.get_cluster(name=f"{PARENT}/clusters/two")
    assert (cluster.status, cluster.status_message) == (Status.ERROR, failed.status_message)


def test_missing_capacity_fails_the_cluster_which_google_deletes_later(net: Gcp) -> None:
    net.control(capacity={f"e2-standard-4/{ZONE}/on-demand": 0})
    begun = net.gke.create_cluster(parent=PARENT, cluster=wish())
    net.advance(1200)
    assert operation(net, begun).status == Operation.Status.RUNNING  # it waits for machines
    net.advance(STEP_S)
    failed = operation(net, begun)
    assert failed.cluster_conditions[0].code == StatusCondition.Code.GCE_STOCKOUT
    listed = net.gke.list_clusters(parent=f"projects/{PROJECT}/locations/-").clusters
    assert [(each.name, each.status) for each in listed] == [("one", Status.ERROR)]
    net.advance(3601)
    assert net.gke.list_clusters(parent=f"projects/{PROJECT}/locations/-").clusters == []


def test_an_exceeded_quota_fails_the_cluster_which_can_be_deleted(net: Gcp) -> None:
    net.control(quotas={f"{REGION}/CPUS": 2})
    begun = net.gke.create_cluster(parent=PARENT, cluster=wish())
    net.advance(361)
    failed = operation(net, begun)
    assert failed.cluster_conditions[0].code == StatusCondition.Code.GCE_QUOTA_EXCEEDED
    assert "CPUS" in failed.error.message
    done(net, net.gke.delete_cluster(name=PATH))
    assert net.state("container") == []


def test_deleting_a_cluster_deletes_its_machines_but_not_all_firewall_rules(gcp: Gcp) -> None:
    ready(gcp)
    before = gcp.state()
    for kind in ("instances", "disks", "instanceGroupManagers", "instanceGroups", "instanceTemplates"):
        assert sum(entry.startswith(f"compute:{kind}:") for entry in before) == 1, kind
    done(gcp, gcp.gke.delete_cluster(name=PATH))
    left = [entry.rpartition("-")[2] for entry in gcp.state("compute:firewalls:")]
    assert left == ["exkubelet", "inkubelet"]
    assert not [entry for entry in gcp.state("compute:") if "gke-" in entry and "firewalls" not in entry]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "Upper"}, "cluster.name"),
        ({"name": "a" * 41}, "at most 40"),
        ({"locations": ["europe-west4-a"]}, "is not a zone of region"),
        ({"initial_cluster_version": "1.20"}, "No valid versions with the prefix"),
        ({"initial_cluster_version": "1.35.8-gke.1"}, "is unsupported"),
        ({"network_config": {"enable_multi_networking": True}}, "requires Dataplane V2"),
        ({"workload_identity_config": {"workload_pool": "other.svc.id.goog"}}, "must be"),
        ({"control_plane_endpoints_config": {"ip_endpoints_config": {"enabled": False}}}, "At least one"),
        ({"resource_labels": {"Upper": "x"}}, "Label keys"),
        ({"resource_labels": {"key": "x" * 64}}, "Label keys"),
        ({"database_encryption": {"state": "ENCRYPTED"}}, "key_name"),
        ({"node_pools": []}, "must be greater than zero"),
        (
            {"ip_allocation_policy": {"use_ip_aliases": True, "cluster_secondary_range_name": "none"}},
            'Secondary range "none" does not exist',
        ),
    ],
)
def test_invalid_requests_are_refused_at_once(net: Gcp, change: dict[str, Any], words: str) -> None:
    with refused("INVALID_ARGUMENT", words):
        net.gke.create_cluster(parent=PARENT, cluster=wish(**change))
    assert net.state("container") == []


def test_a_missing_network_is_not_found(net: Gcp) -> None:
    for change in ({"network": "none"}, {"subnetwork": "none"}):
        with refused("NOT_FOUND", "named"):
            net.gke.create_cluster(parent=PARENT, cluster=wish(**change))


def test_a_subnetwork_with_a_cluster_is_in_use(gcp: Gcp) -> None:
    ready(gcp)
    done(gcp, gcp.gke.delete_node_pool(name=f"{PATH}/nodePools/cpu"))
    with refused("400", f"already being used by '{PATH}'"):
        gcp.compute("Subnetworks").delete_unary(project=PROJECT, region=REGION, subnetwork="nodes")


def test_a_regional_cluster_has_nodes_of_each_pool_in_each_zone(net: Gcp) -> None:
    parent = f"projects/{PROJECT}/locations/{REGION}"
    begun = net.gke.create_cluster(parent=parent, cluster=wish())
    assert begun.target_link.endswith(f"/locations/{REGION}/clusters/one")
    net.advance(STEP_S)
    cluster = net.gke.get_cluster(name=f"{parent}/clusters/one")
    assert (len(cluster.locations), cluster.current_node_count) == (3, 3)
    assert len(cluster.node_pools[0].instance_group_urls) == 3


def test_a_degraded_cluster_has_a_reason_and_can_be_changed(gcp: Gcp) -> None:
    ready(gcp)
    gcp.control(gke_degraded={"one": "CLOUD_KMS_KEY_ERROR"})
    done(gcp, resize(gcp, f"{PATH}/nodePools/cpu", 2))
    cluster = gcp.gke.get_cluster(name=PATH)
    assert cluster.status == Status.DEGRADED
    assert cluster.conditions[0].code == StatusCondition.Code.CLOUD_KMS_KEY_ERROR
    gcp.control(gke_degraded={"one": None})
    assert gcp.gke.get_cluster(name=PATH).status == Status.RUNNING


def test_setting_labels_needs_the_current_fingerprint(gcp: Gcp) -> None:
    ready(gcp)
    with refused("FAILED_PRECONDITION", "fingerprint"):
        gcp.gke.set_labels(request={"name": PATH, "resource_labels": {"a": "b"}, "label_fingerprint": "old"})
    mark = gcp.gke.get_cluster(name=PATH).label_fingerprint
    request = {"name": PATH, "resource_labels": {"a": "b"}, "label_fingerprint": mark}
    done(gcp, gcp.gke.set_labels(request=request))
    cluster = gcp.gke.get_cluster(name=PATH)
    assert (dict(cluster.resource_labels), cluster.label_fingerprint == mark) == ({"a": "b"}, False)


def test_settings_are_changed_one_at_a_time(gcp: Gcp) -> None:
    ready(gcp)
    both = ClusterUpdate(
        desired_master_version="1.36", desired_release_channel=ReleaseChannel(channel="RAPID")
    )
    with refused("INVALID_ARGUMENT", "exactly one"):
        gcp.gke.update_cluster(name=PATH, update=both)
    networks = {"enabled": True, "cidr_blocks": [{"cidr_block": "192.0.2.0/24"}]}
    endpoints = {"ip_endpoints_config": {"authorized_networks_config": networks}}
    update = ClusterUpdate({"desired_control_plane_endpoints_config": endpoints})
    done(gcp, gcp.gke.update_cluster(name=PATH, update=update))
    done(gcp, gcp.gke.update_cluster(name=PATH, update=update))
    config = gcp.gke.get_cluster(name=PATH).control_plane_endpoints_config
    blocks = config.ip_endpoints_config.authorized_networks_config.cidr_blocks
    assert [block.cidr_block for block in blocks] == ["192.0.2.0/24"]
    assert config.dns_endpoint_config.allow_external_traffic
    addons = ClusterUpdate({"desired_addons_config": {"lustre_csi_driver_config": {"enabled": True}}})
    done(gcp, gcp.gke.update_cluster(name=PATH, update=addons))
    assert gcp.gke.get_cluster(name=PATH).addons_config.lustre_csi_driver_config.enabled


def test_a_control_plane_is_upgraded_one_minor_version_at_a_time_and_never_downgraded(gcp: Gcp) -> None:
    old, new = "1.33.14-gke.1140000", "1.34.11-gke.1320000"
    ready(gcp, release_channel={"channel": "EXTENDED"}, initial_cluster_version=old)
    with refused("INVALID_ARGUMENT", "minor version"):
        gcp.gke.update_cluster(name=PATH, update=ClusterUpdate(desired_master_version="1.36"))
    pool_path = f"{PATH}/nodePools/cpu"
    with refused("INVALID_ARGUMENT", "must not be newer"):
        gcp.gke.update_node_pool(request={"name": pool_path, "node_version": new})
    begun = gcp.gke.update_cluster(name=PATH, update=ClusterUpdate(desired_master_version="1.34"))
    assert begun.operation_type == Kind.UPGRADE_MASTER
    done(gcp, begun)
    with refused("INVALID_ARGUMENT", "cannot be downgraded"):
        gcp.gke.update_cluster(name=PATH, update=ClusterUpdate(desired_master_version=old))
    done(gcp, gcp.gke.update_node_pool(request={"name": pool_path, "node_version": new}))
    cluster = gcp.gke.get_cluster(name=PATH)
    assert (cluster.current_master_version, cluster.node_pools[0].version) == (new, new)


def test_versions_are_listed_by_release_channel(gcp: Gcp) -> None:
    config = gcp.gke.get_server_config(name=f"projects/{PROJECT}/locations/{REGION}")
    assert config.default_cluster_version in config.valid_master_versions
    by_name = {each.channel.name: each for each in config.channels}
    assert by_name["REGULAR"].default_version == config.default_cluster_version
    assert "1.34.11-gke.1320000" in by_name["EXTENDED"].valid_versions


def test_a_snapshot_restores_a_cluster_with_its_operation_in_progress(net: Gcp) -> None:
    begun = net.gke.create_cluster(parent=PARENT, cluster=wish())
    net.ask("POST", "/save", {"name": "early"})
    net.advance(STEP_S)
    done(net, net.gke.delete_cluster(name=PATH))
    net.ask("POST", "/restore", {"name": "early"})
    assert net.gke.get_cluster(name=PATH).status == Status.PROVISIONING
    done(net, begun)
