"""Nodes: allocatable resources, unschedulable pods and lost nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.kubernetes.support_nodes import (
    NAMESPACE,
    Cluster,
    conditions,
    job,
    pod,
    running,
    state,
    wait,
)

_POLICY = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}
_TRAINS = ("sh", "-c", "trap 'exit 75' TERM; while :; do sleep 0.05; done")
_SOON = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 30,
}
_ALONE = {"container": {"resources": {"requests": {"cpu": "3"}}}, "tolerations": [_SOON]}


@pytest.fixture(scope="module")
def process() -> Iterator[Cluster]:
    with running() as cluster:
        yield cluster


@pytest.fixture
def cluster(process: Cluster) -> Cluster:
    process.control(reset=True)
    return process


def _nodes(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {node["metadata"]["name"]: node for node in cluster.get("/api/v1/nodes")["items"]}


def _container(cluster: Cluster, name: str) -> str:
    """The id of a pod's container; empty while it does not run."""
    found = cluster.pod(name)["status"].get("containerStatuses") or [{}]
    return str(found[0].get("containerID", "")) if "running" in found[0].get("state", {}) else ""


def _trained(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """A Job of two pods, each on its own node, by index."""
    cluster.apply(job("t", *_TRAINS, pods=2, podFailurePolicy=_POLICY, pod=_ALONE))
    wait(lambda: cluster.job("t")["status"].get("ready") == 2, what="the pods")
    return _by_index(cluster)


def _by_index(cluster: Cluster) -> dict[str, dict[str, Any]]:
    index = "batch.kubernetes.io/job-completion-index"
    return {pod["metadata"]["labels"][index]: pod for pod in cluster.pods(run="t")}


def test_a_preempted_spot_node_ends_its_pods_and_is_replaced(cluster: Cluster) -> None:
    # GKE's notice. Processes live in real time, and a busy machine takes seconds to run a shell's trap.
    cluster.control(node_timing={"grace_s": 15, "replacement_s": 60})
    lost = _trained(cluster)["1"]
    node = lost["spec"]["nodeName"]
    cluster.control(evict={"node": node, "how": "spot"})
    assert conditions(cluster.pod(lost["metadata"]["name"]))["DisruptionTarget"] == "TerminationByKubelet"
    wait(lambda: "terminated" in state(cluster.pod(lost["metadata"]["name"])), what="its end")
    ended = cluster.pod(lost["metadata"]["name"])
    assert (ended["status"]["phase"], ended["status"]["reason"]) == ("Failed", "Terminated")
    assert state(ended)["terminated"]["exitCode"] == 75
    wait(lambda: node not in _nodes(cluster), what="the node's end")
    cluster.control(advance_s=61)
    wait(lambda: cluster.job("t")["status"].get("ready") == 2, what="a pod on the new node")
    assert len(_nodes(cluster)) == 2
    assert cluster.job("t")["status"].get("failed", 0) == 0


def test_a_lost_node_is_detected_with_a_delay_and_its_pods_are_replaced(cluster: Cluster) -> None:
    lost = _trained(cluster)["0"]
    name, node = lost["metadata"]["name"], lost["spec"]["nodeName"]
    cluster.control(evict={"node": node, "how": "vanish"})
    assert cluster.pod(name)["status"]["phase"] == "Running"
    cluster.control(advance_s=49)
    assert "Ready" in conditions(_nodes(cluster)[node])
    cluster.control(advance_s=2)
    wait(lambda: "Ready" not in conditions(_nodes(cluster)[node]), what="NotReady")
    assert {taint["effect"] for taint in _nodes(cluster)[node]["spec"]["taints"]} == {
        "NoSchedule",
        "NoExecute",
    }
    cluster.control(advance_s=31)
    wait(lambda: "deletionTimestamp" in cluster.pod(name)["metadata"], what="the eviction")
    assert conditions(cluster.pod(name))["DisruptionTarget"] == "DeletionByTaintManager"
    for _ in range(4):
        cluster.control(advance_s=40)
        time.sleep(0.1)
    wait(lambda: cluster.job("t")["status"].get("ready") == 2, what="another pod")
    assert cluster.job("t")["status"].get("failed", 0) == 0


def test_the_pods_of_a_node_that_its_cloud_removes_are_collected_and_replaced(cluster: Cluster) -> None:
    pools = [{"name": name, "count": 1} for name in ("first", "second")]
    cluster.control(nodes=pools[:1])
    cluster.apply(job("t", *_TRAINS, podFailurePolicy=_POLICY))
    wait(lambda: cluster.job("t")["status"].get("ready") == 1, what="the pod")
    (lost,) = cluster.pods(run="t")
    cluster.control(nodes=pools[1:])
    cluster.control(advance_s=39)
    assert [each["metadata"]["name"] for each in cluster.pods(run="t")] == [lost["metadata"]["name"]]
    cluster.control(advance_s=2)
    wait(
        lambda: [each["spec"].get("nodeName") for each in cluster.pods(run="t")] == ["second-0"],
        what="another pod on the other node",
    )
    assert cluster.job("t")["status"].get("failed", 0) == 0


def test_a_new_machine_with_the_name_of_a_lost_one_starts_the_pods_of_that_name(cluster: Cluster) -> None:
    pool = {"name": "gpu", "count": 1}
    cluster.control(nodes=[pool])
    cluster.apply(pod("p", *_TRAINS))
    before = wait(lambda: _container(cluster, "p"), what="the pod runs")
    cluster.control(nodes=[])
    cluster.control(nodes=[pool])
    wait(lambda: _container(cluster, "p") not in ("", before), what="it runs again", timeout_s=20)


def test_a_drain_respects_disruption_budgets(cluster: Cluster) -> None:
    lost = _trained(cluster)["0"]["metadata"]["name"]
    budget = {"maxUnavailable": 0, "selector": {"matchLabels": {"run": "t"}}}
    kind = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "t"},
        "spec": budget,
    }
    cluster.apply(kind)
    path = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/t"
    wait(lambda: cluster.get(path).get("status", {}).get("currentHealthy") == 2, what="the budget's count")
    cluster.control(evict={"node": cluster.pod(lost)["spec"]["nodeName"], "how": "drain"})
    cluster.control(advance_s=20)
    assert "deletionTimestamp" not in cluster.pod(lost)["metadata"]
    cluster.patch(path, {"spec": {"maxUnavailable": 1}})
    cluster.control(advance_s=6)
    wait(lambda: lost not in {each["metadata"]["name"] for each in cluster.pods()}, what="the eviction")


def test_gpus_are_allocatable_with_their_plugin_and_visible_only_to_their_pod(cluster: Cluster) -> None:
    gpu = {"name": "gpu", "count": 1, "labels": {"gpu": "yes"}, "hardware": {"gpus": 8, "efa": 4}}
    cluster.control(nodes=[gpu])
    wants = {"resources": {"limits": {"nvidia.com/gpu": 2, "vpc.amazonaws.com/efa": 1}}}
    look = "ls /dev | grep nvidia; ls /dev/infiniband /sys/class/infiniband; true"
    cluster.apply(pod("has", "sh", "-c", look, container=wants))
    wait(lambda: cluster.events("FailedScheduling"), what="the scheduler's words")
    assert cluster.events("FailedScheduling")[0] == (
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu, 1 Insufficient vpc.amazonaws.com/efa. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    for name, image in (
        ("nvidia", "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"),
        ("efa", "public.ecr.aws/eks/aws-efa-k8s-device-plugin:v0.5.20"),
    ):
        cluster.apply(_daemon(name, image))
    wait(lambda: cluster.pod("has")["status"]["phase"] == "Succeeded", what="the run")
    seen = set(cluster.log("has").split())
    assert {"nvidia0", "nvidia1", "nvidiactl", "uverbs0", "rdmap16s27"} <= seen
    assert "nvidia2" not in seen
    cluster.apply(pod("has-not", "sh", "-c", look))
    wait(lambda: cluster.pod("has-not")["status"]["phase"] == "Succeeded", what="the run")
    assert "nvidia0" not in cluster.log("has-not")
    cluster.delete(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/nvidia")
    wait(lambda: _allocatable(cluster).get("nvidia.com/gpu") == "0", what="the plugin's end")


def _allocatable(cluster: Cluster) -> dict[str, str]:
    found: dict[str, str] = _nodes(cluster)["gpu-0"]["status"]["allocatable"]
    return found


def _daemon(name: str, image: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "plugin", "image": image}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": spec}


def test_an_unschedulable_pod_is_reported(cluster: Cluster) -> None:
    taint = {"key": "team", "value": "red", "effect": "NoSchedule"}
    cluster.control(nodes=[{"name": "a", "taints": [taint]}, {"name": "b"}])
    cluster.apply(pod("picky", "true", nodeSelector={"gpu": "yes"}))
    wait(lambda: cluster.events("FailedScheduling"), what="the scheduler's words")
    assert cluster.events("FailedScheduling")[0].startswith(
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had untolerated taint {team: red}. preemption: "
    )


def test_no_process_survives_a_killed_stand_in(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from tests.sandbox.kubernetes.support_nodes import pod, running, state, wait\n"
        "with running() as cluster:\n"
        "    script = 'setsid sleep 4321.5 & setsid sleep 4321.5 & wait'\n"
        "    cluster.apply(pod('p', 'sh', '-c', script))\n"
        "    wait(lambda: 'running' in state(cluster.pod('p')), what='a start')\n"
        "    print('up', flush=True)\n"
        "    wait(lambda: False, what='the end', timeout_s=60)\n"
    )
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", program, root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout
        assert process.stdout.readline() == "up\n"
        wait(lambda: len(_sleepers()) == 2, what="the container's own children")
        os.kill(process.pid, signal.SIGKILL)
    wait(lambda: not _sleepers(), what="the end of all", timeout_s=5)


def _sleepers() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:  # it has just ended
            continue
        if text == b"sleep\x004321.5\x00":
            found.append(path.parent.name)
    return found
