"""Node pools: missing GPU capacity at creation and at resizing, machines, taints and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud.container_v1 import NodePool, NodeTaint, Operation, StatusCondition

from tests.sandbox.gcp.support import PROJECT, REGION, ZONE, Gcp, refused
from tests.sandbox.gcp.support_gke import (
    A3,
    L4,
    PATH,
    STEP_S,
    done,
    network,
    operation,
    pool,
    ready,
    resize,
    subnetwork,
)

GPU = f"{PATH}/nodePools/gpu"
Status, Code = NodePool.Status, StatusCondition.Code
STOCK = f"{L4}/{ZONE}/on-demand"


@pytest.fixture
def there(gcp: Gcp) -> Gcp:
    ready(gcp)
    return gcp


def machines(gcp: Gcp, name: str = "gpu") -> list[str]:
    return [entry for entry in gcp.state("compute:instances:") if f"/gke-one-{name}-" in entry]


def test_an_empty_pool_is_created_quickly_and_gets_nodes_by_a_resize(there: Gcp) -> None:
    begun = there.gke.create_node_pool(parent=PATH, node_pool=pool())
    assert there.gke.get_node_pool(name=GPU).status == Status.PROVISIONING
    there.advance(91)
    assert operation(there, begun).status == Operation.Status.DONE
    found = there.gke.get_node_pool(name=GPU)
    assert (found.status, found.initial_node_count, machines(there)) == (Status.RUNNING, 0, [])
    begun = resize(there, GPU, 3)
    assert there.gke.get_node_pool(name=GPU).status == Status.RECONCILING
    done(there, begun)
    assert len(machines(there)) == 3
    done(there, resize(there, GPU, 1))
    assert len(machines(there)) == 1
    done(there, there.gke.delete_node_pool(name=GPU))
    assert (machines(there), [entry for entry in there.state() if "gke-one-gpu" in entry]) == ([], [])


def test_machines_have_the_labels_the_capacity_type_and_the_networks_of_the_pool(there: Gcp) -> None:
    network(there, "fast")
    subnetwork(there, "fast", "fast", number=3, ranges=())
    nets = [{"network": "fast", "subnetwork": "fast"}]
    made = pool(
        nodes=1,
        config={"spot": True, "resource_labels": {"who": "me"}},
        network_config={"additional_node_network_configs": nets},
    )
    done(there, there.gke.create_node_pool(parent=PATH, node_pool=made))
    (machine,) = machines(there)
    name = machine.rpartition("/")[2]
    shown = there.compute("Instances").get(project=PROJECT, zone=ZONE, instance=name)
    assert shown.labels["who"] == "me"
    assert shown.labels["made-by"] == "tests"
    assert shown.labels["goog-k8s-node-pool-name"] == "gpu"
    assert shown.scheduling.provisioning_model == "SPOT"
    assert [each.subnetwork.rpartition("/")[2] for each in shown.network_interfaces] == ["nodes", "fast"]
    url = there.gke.get_node_pool(name=GPU).instance_group_urls[0]
    group = there.compute("InstanceGroupManagers").get(
        project=PROJECT, zone=ZONE, instance_group_manager=url.rpartition("/")[2]
    )
    assert (group.target_size, group.status.is_stable, group.current_actions.none) == (1, True, 1)


def test_a_creation_without_capacity_locks_the_cluster_and_cannot_be_cancelled(there: Gcp) -> None:
    there.control(capacity={STOCK: 1})
    begun = there.gke.create_node_pool(parent=PATH, node_pool=pool(nodes=2))
    there.advance(1200)
    assert operation(there, begun).status == Operation.Status.RUNNING
    with refused("FAILED_PRECONDITION", "is currently creating node pool gpu"):
        there.gke.delete_node_pool(name=GPU)
    with refused("FAILED_PRECONDITION", "Cluster is running incompatible operation"):
        there.gke.create_node_pool(parent=PATH, node_pool=pool("other"))
    with refused("FAILED_PRECONDITION"):
        there.gke.delete_cluster(name=PATH)
    with refused("FAILED_PRECONDITION", "cannot be cancelled"):
        there.gke.cancel_operation(name=f"{PATH.partition('/clusters')[0]}/operations/{begun.name}")
    there.advance(STEP_S)
    failed = operation(there, begun)
    assert failed.status == Operation.Status.DONE
    assert failed.nodepool_conditions[0].code == Code.GCE_STOCKOUT
    assert "does not have enough resources" in failed.error.message
    found = there.gke.get_node_pool(name=GPU)
    assert (found.status, found.conditions[0].code) == (Status.RUNNING_WITH_ERROR, Code.GCE_STOCKOUT)
    assert len(machines(there)) == 1  # what could be had is paid for
    done(there, there.gke.delete_node_pool(name=GPU))


def test_a_pool_without_any_machine_stays_in_error_until_deleted(there: Gcp) -> None:
    there.control(capacity={STOCK: 0})
    there.gke.create_node_pool(parent=PATH, node_pool=pool(nodes=1))
    there.advance(STEP_S)
    there.advance(STEP_S)
    assert there.gke.get_node_pool(name=GPU).status == Status.ERROR
    with refused("ALREADY_EXISTS", GPU):
        there.gke.create_node_pool(parent=PATH, node_pool=pool())
    with refused("FAILED_PRECONDITION", "in state ERROR"):
        resize(there, GPU, 1)
    done(there, there.gke.delete_node_pool(name=GPU))
    with refused("NOT_FOUND", GPU):
        there.gke.get_node_pool(name=GPU)


def test_a_creation_succeeds_if_capacity_becomes_available(there: Gcp) -> None:
    there.control(capacity={STOCK: 0})
    begun = there.gke.create_node_pool(parent=PATH, node_pool=pool(nodes=1))
    there.advance(600)
    there.control(capacity={STOCK: 4})
    there.advance(300)
    assert operation(there, begun).error.message == ""
    assert (there.gke.get_node_pool(name=GPU).status, len(machines(there))) == (Status.RUNNING, 1)


def test_a_resize_without_capacity_ends_at_once_but_the_group_keeps_trying(there: Gcp) -> None:
    there.control(capacity={STOCK: 0})
    done(there, there.gke.create_node_pool(parent=PATH, node_pool=pool()))
    begun = resize(there, GPU, 1)
    there.advance(121)
    failed = operation(there, begun)
    assert failed.nodepool_conditions[0].code == Code.GCE_STOCKOUT
    found = there.gke.get_node_pool(name=GPU)
    assert (found.status, found.conditions[0].code) == (Status.RUNNING_WITH_ERROR, Code.GCE_STOCKOUT)
    there.control(capacity={STOCK: 1})
    there.advance(301)
    assert (there.gke.get_node_pool(name=GPU).status, len(machines(there))) == (Status.RUNNING, 1)


def test_an_exceeded_quota_fails_the_operation_and_is_shown_by_the_pool(there: Gcp) -> None:
    there.control(quotas={f"{REGION}/NVIDIA_L4_GPUS": 1})
    begun = there.gke.create_node_pool(parent=PATH, node_pool=pool(nodes=2))
    there.advance(301)
    failed = operation(there, begun)
    assert failed.status == Operation.Status.DONE
    assert failed.nodepool_conditions[0].code == Code.GCE_QUOTA_EXCEEDED
    assert "NVIDIA_L4_GPUS" in failed.error.message


def test_compact_placement_gets_all_nodes_or_none(there: Gcp) -> None:
    there.control(capacity={STOCK: 1})
    done(
        there, there.gke.create_node_pool(parent=PATH, node_pool=pool(placement_policy={"type_": "COMPACT"}))
    )
    resize(there, GPU, 2)
    there.advance(121)
    assert machines(there) == []


def test_pools_beyond_the_operation_quota_are_refused(there: Gcp) -> None:
    there.control(gke_pool_operations=5)
    for number in range(5):
        there.gke.create_node_pool(parent=PATH, node_pool=pool(f"gpu-{number}"))
    with refused("RESOURCE_EXHAUSTED", "hits the concurrent operations quota 5"):
        there.gke.create_node_pool(parent=PATH, node_pool=pool("gpu-5"))
    there.advance(STEP_S)
    there.gke.create_node_pool(parent=PATH, node_pool=pool("gpu-5"))


def test_gpu_pools_are_tainted_only_if_another_pool_exists(gcp: Gcp) -> None:
    ready(gcp, node_pools=[pool("first", 1)])
    assert gcp.gke.get_node_pool(name=f"{PATH}/nodePools/first").config.taints == []
    plain = NodePool(name="cpu", initial_node_count=1)
    done(gcp, gcp.gke.create_node_pool(parent=PATH, node_pool=plain))
    done(gcp, gcp.gke.create_node_pool(parent=PATH, node_pool=pool()))
    (taint,) = gcp.gke.get_node_pool(name=GPU).config.taints
    assert (taint.key, taint.value, taint.effect) == (
        "nvidia.com/gpu",
        "present",
        NodeTaint.Effect.NO_SCHEDULE,
    )
    assert gcp.gke.get_node_pool(name=f"{PATH}/nodePools/first").config.taints == []


def test_the_pod_address_range_can_be_exhausted(gcp: Gcp) -> None:
    ready(gcp)
    gcp.control(
        quotas={f"{REGION}/CPUS": 10_000, f"{REGION}/INSTANCES": 1000, f"{REGION}/SSD_TOTAL_GB": 10**6}
    )
    big = NodePool({"name": "many", "initial_node_count": 0, "config": {"machine_type": "e2-medium"}})
    done(gcp, gcp.gke.create_node_pool(parent=PATH, node_pool=big))
    begun = resize(gcp, f"{PATH}/nodePools/many", 300)
    gcp.advance(121)
    assert "IP_SPACE_EXHAUSTED" in operation(gcp, begun).error.message


def test_the_node_address_range_can_be_exhausted(there: Gcp) -> None:
    network(there, "fast")
    subnetwork(there, "fast", "fast", number=3, bits=29, ranges=())
    nets = {"additional_node_network_configs": [{"network": "fast", "subnetwork": "fast"}]}
    done(there, there.gke.create_node_pool(parent=PATH, node_pool=pool(network_config=nets)))
    done(there, resize(there, GPU, 4))
    begun = resize(there, GPU, 5)
    there.advance(121)
    assert "IP_SPACE_EXHAUSTED" in operation(there, begun).error.message


def test_flex_start_waits_in_a_queue_and_never_fails(there: Gcp) -> None:
    scaling = {"enabled": True, "total_max_node_count": 2}
    kind: dict[str, Any] = {
        "config": {"flex_start": True},
        "autoscaling": scaling,
        "management": {"auto_repair": False, "auto_upgrade": True},
    }
    with refused("INVALID_ARGUMENT", "created with zero nodes"):
        there.gke.create_node_pool(parent=PATH, node_pool=pool(nodes=1, **kind))
    there.control(capacity={f"{L4}/{ZONE}/flex-start": 0})
    done(there, there.gke.create_node_pool(parent=PATH, node_pool=pool(**kind)))
    done(there, resize(there, GPU, 1))
    assert (there.gke.get_node_pool(name=GPU).status, machines(there)) == (Status.RUNNING, [])
    there.control(capacity={f"{L4}/{ZONE}/flex-start": 5})
    there.advance(601)
    assert len(machines(there)) == 1


def test_labels_taints_and_autoscaling_of_a_pool_are_replaced_as_a_whole(there: Gcp) -> None:
    made = pool(config={"labels": {"a": "b"}})
    done(there, there.gke.create_node_pool(parent=PATH, node_pool=made))
    done(there, there.gke.update_node_pool(request={"name": GPU, "labels": {"labels": {"c": "d"}}}))
    assert dict(there.gke.get_node_pool(name=GPU).config.labels) == {"c": "d"}
    done(there, there.gke.update_node_pool(request={"name": GPU, "labels": {"labels": {}}}))
    taints = {"taints": [{"key": "k", "value": "v", "effect": "NO_EXECUTE"}]}
    done(there, there.gke.update_node_pool(request={"name": GPU, "taints": taints}))
    scaling = {"enabled": True, "total_max_node_count": 4}
    done(there, there.gke.set_node_pool_autoscaling(request={"name": GPU, "autoscaling": scaling}))
    found = there.gke.get_node_pool(name=GPU)
    assert (dict(found.config.labels), [taint.key for taint in found.config.taints]) == ({}, ["k"])
    assert found.autoscaling.total_max_node_count == 4


def test_only_an_upgrade_of_a_pool_can_be_cancelled(there: Gcp) -> None:
    begun = there.gke.update_node_pool(request={"name": f"{PATH}/nodePools/cpu", "node_version": "-"})
    there.gke.cancel_operation(name=f"{PATH.partition('/clusters')[0]}/operations/{begun.name}")
    assert operation(there, begun).error.code == 1
    assert there.gke.get_node_pool(name=f"{PATH}/nodePools/cpu").status == Status.RUNNING
    resize(there, f"{PATH}/nodePools/cpu", 2)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (pool("a" * 41), "node_pool.name"),
        (pool(nodes=-1), "initial_node_count"),
        (pool(locations=["us-east1-b"]), "is not a zone of region"),
        (pool(config={"machine_type": "z9-huge"}), 'Machine type with name "z9-huge"'),
        (pool(config={"machine_type": A3}), "accelerator"),
        (pool(config={"accelerators": []}), "must name them"),
        (pool(config={"spot": True, "preemptible": True}), "cannot both"),
        (pool(config={"fast_socket": {"enabled": True}}), "requires gVNIC"),
        (pool(config={"disk_size_gb": 5}), "below 10 GB"),
        (pool(config={"image_type": "DOS"}), "Image type"),
        (pool(config={"labels": {"kubernetes.io/x": "y"}}), "reserved prefix"),
        (pool(config={"labels": {"bad key": "y"}}), "is not valid"),
        (pool(config={"taints": [{"key": "k"}]}), "a key and an effect"),
        (pool(config={"kubelet_config": {"shutdown_grace_period_seconds": 60}}), "none of 0, 30, 120"),
        (pool(config={"kubelet_config": {"shutdown_grace_period_seconds": 30}}), "only valid for Spot"),
        (pool(config={"service_account": "nobody@example.com"}), "does not exist"),
        (
            pool(config={"reservation_affinity": {"consume_reservation_type": "SPECIFIC_RESERVATION"}}),
            "reservation-name",
        ),
        (pool(placement_policy={"type_": "COMPACT", "policy_name": "none"}), "was not found"),
        (
            NodePool(
                {
                    "name": "e",
                    "config": {"machine_type": "e2-standard-4"},
                    "placement_policy": {"type_": "COMPACT"},
                }
            ),
            "not supported for machine type",
        ),
        (pool(autoscaling={"enabled": True}), "min_node_count"),
        (pool(management={"auto_repair": True}), "Auto_upgrade must be true when release_channel"),
        (
            pool(
                network_config={
                    "additional_node_network_configs": [{"network": "net", "subnetwork": "nodes"}]
                }
            ),
            "more than one interface",
        ),
    ],
)
def test_invalid_requests_are_refused_at_once(process: Gcp, wrong: Any, words: str) -> None:
    if not process.state(f"container:clusters:{PATH}"):
        process.control(reset=True, speed=0.001)
        ready(process)
    with refused("INVALID_ARGUMENT", words):
        process.gke.create_node_pool(parent=PATH, node_pool=wrong)
    assert process.state("container:nodePools:") == [f"container:nodePools:{PATH}/nodePools/cpu"]
