"""Jobs, and the objects that operators create."""

from __future__ import annotations

import os
from collections.abc import Iterator
from copy import deepcopy
from importlib.util import find_spec
from typing import Any

import pytest

from tests.sandbox.kubernetes.support_nodes import (
    IMAGE,
    NAMESPACE,
    Cluster,
    conditions,
    job,
    pod,
    running,
    service,
    wait,
)
from tests.unit.kubernetes_manifests.support_matrix import objects

_IGNORE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_COUNTED = "batch.kubernetes.io/job-index-failure-count"
_IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
_ENDS = (
    "backoffLimit",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "podFailurePolicy",
    "podReplacementPolicy",
)
_FOREVER = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done")


@pytest.fixture(scope="module")
def process() -> Iterator[Cluster]:
    with running() as cluster:
        yield cluster


@pytest.fixture
def cluster(process: Cluster) -> Cluster:
    process.control(reset=True)
    return process


def _ended(cluster: Cluster, name: str) -> dict[str, str]:
    def found() -> dict[str, str] | None:
        holding = conditions(cluster.job(name))
        return holding if {"Complete", "Failed"} & set(holding) else None

    holding: dict[str, str] = wait(found, what=f"the end of the job {name}")
    return holding


def _policy(action: str, *codes: int) -> dict[str, Any]:
    rule = {"action": action, "onExitCodes": {"operator": "In", "values": list(codes)}}
    return {"rules": [_IGNORE, rule]}


def test_a_job_fails_at_once_for_a_fatal_exit_code_and_names_the_rule(cluster: Cluster) -> None:
    script = '[ "$JOB_COMPLETION_INDEX" = 0 ] && exit 65; sleep 30'
    policy = _policy("FailJob", 64, 65)
    cluster.apply(job("final", "sh", "-c", script, pods=2, podFailurePolicy=policy, backoffLimit=9))
    assert _ended(cluster, "final") == {"FailureTarget": "PodFailurePolicy", "Failed": "PodFailurePolicy"}
    message = next(each["message"] for each in cluster.job("final")["status"]["conditions"])
    assert message.endswith("failed with exit code 65 matching FailJob rule at index 1")
    assert cluster.job("final")["status"].get("active", 0) == 0


def test_a_job_retries_ignored_failures_with_backoff(cluster: Cluster) -> None:
    cluster.apply(job("again", "sh", "-c", "exit 75", podFailurePolicy=_policy("Ignore", 75)))
    wait(lambda: len(cluster.pods(run="again")) == 1, what="a pod")
    wait(lambda: cluster.pods(run="again")[0]["status"]["phase"] == "Failed", what="its end")
    cluster.control(advance_s=9)
    assert len(cluster.pods(run="again")) == 1
    cluster.control(advance_s=2)
    wait(lambda: len(cluster.pods(run="again")) == 2, what="another")
    assert cluster.job("again")["status"].get("failed", 0) == 0


def test_a_job_that_fails_too_often_reaches_its_backoff_limit(cluster: Cluster) -> None:
    cluster.apply(job("often", "false"))
    assert _ended(cluster, "often")["Failed"] == "BackoffLimitExceeded"
    assert cluster.job("often")["status"]["failed"] == 1


def _ended_pods(cluster: Cluster, name: str) -> int:
    return sum(each["status"].get("phase") == "Failed" for each in cluster.pods(run=name))


def test_with_a_limit_per_index_backoff_is_per_index(
    cluster: Cluster,
) -> None:
    """As a run's Job is made: nine preemptions would cost the whole Job ten minutes."""
    spec = _run_spec()
    cluster.control(nodes=[{"name": "node", "count": 3}])
    cluster.apply(job("spot", "sh", "-c", "exit 75", pods=9, **spec))
    for generation in (1, 2):
        wait(lambda: _ended_pods(cluster, "spot") == 9 * generation, what="the ends")  # noqa: B023 - at once
        cluster.control(advance_s=10 * generation - 2)
        assert len(cluster.pods(run="spot")) == 9 * generation
        cluster.control(advance_s=3)
        wait(lambda: len(cluster.pods(run="spot")) == 9 * (generation + 1), what="a pod an index")  # noqa: B023
    newest = [each["metadata"]["annotations"] for each in cluster.pods(run="spot")]
    assert sum((each.get(_IGNORED), each[_COUNTED]) == ("2", "0") for each in newest) == 9
    assert cluster.job("spot")["status"].get("failed", 0) == 0


def _run_spec() -> dict[str, Any]:
    """The fields of a run's Job that say what the end of a pod means; its container is called main here."""
    (made,) = (each for each in objects("aws-p5", "torchrun") if each["kind"] == "Job")
    spec = {name: deepcopy(made["spec"][name]) for name in _ENDS}
    for rule in spec["podFailurePolicy"]["rules"]:
        if "onExitCodes" in rule:
            rule["onExitCodes"]["containerName"] = "main"
    return spec


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"backoffLimitPerIndex": 1, "maxFailedIndexes": 0, "backoffLimit": 9}, "MaxFailedIndexesExceeded"),
        ({"backoffLimitPerIndex": 1, "backoffLimit": 9}, "FailedIndexes"),
        ({"backoffLimitPerIndex": 9, "maxFailedIndexes": 0, "backoffLimit": 1}, "BackoffLimitExceeded"),
    ],
)
def test_an_index_that_fails_too_often_ends_the_job(
    cluster: Cluster, limits: dict[str, int], reason: str
) -> None:
    script = '[ "$JOB_COMPLETION_INDEX" = 0 ] && exit 1; exit 0'
    cluster.apply(job("index", "sh", "-c", script, pods=2, **limits))
    wait(lambda: _ended_pods(cluster, "index") == 1, what="the first failure")
    wait(lambda: cluster.job("index")["status"].get("completedIndexes") == "1", what="the other one's end")
    cluster.control(advance_s=11)
    assert _ended(cluster, "index")["Failed"] == reason
    status = cluster.job("index")["status"]
    assert (status["failed"], status["completedIndexes"]) == (2, "1")
    assert status["failedIndexes"] == ("0" if "Index" in reason else "")


def test_a_rule_can_fail_the_index_at_once(cluster: Cluster) -> None:
    limits: dict[str, Any] = {
        "backoffLimit": 9,
        "backoffLimitPerIndex": 5,
        "podFailurePolicy": _policy("FailIndex", 3),
    }
    cluster.apply(job("rule", "sh", "-c", "exit 3", **limits))
    assert _ended(cluster, "rule")["Failed"] == "FailedIndexes"
    assert len(cluster.pods(run="rule")) == 1


def test_a_suspended_job_ends_its_pods_without_failures_and_can_be_resumed(cluster: Cluster) -> None:
    cluster.apply(job("pause", *_FOREVER, pods=2))
    wait(lambda: cluster.job("pause")["status"].get("ready") == 2, what="the pods")
    cluster.patch(f"{_JOBS}/pause", {"spec": {"suspend": True}})
    wait(lambda: not cluster.pods(run="pause"), what="their end")
    status = cluster.job("pause")["status"]
    assert conditions(cluster.job("pause")) == {"Suspended": "JobSuspended"}
    assert (status.get("active", 0), status.get("failed", 0)) == (0, 0)
    assert "startTime" not in status
    cluster.patch(f"{_JOBS}/pause", {"spec": {"suspend": False}})
    wait(lambda: cluster.job("pause")["status"].get("active") == 2, what="new pods")


def test_deadline_and_time_to_live_pass_in_virtual_time(cluster: Cluster) -> None:
    cluster.apply(job("late", *_FOREVER, activeDeadlineSeconds=600, ttlSecondsAfterFinished=3600))
    wait(lambda: cluster.job("late")["status"].get("ready") == 1, what="the pod")
    cluster.control(advance_s=601)
    assert _ended(cluster, "late")["Failed"] == "DeadlineExceeded"
    cluster.control(advance_s=3601)
    wait(lambda: not cluster.get(_JOBS)["items"], what="the removal")


def _kept_in_the_books(cluster: Cluster, count: int) -> None:
    node = {"name": "big", "count": 4, "capacity": {"cpu": "1000", "memory": "4Ti", "pods": "500"}}
    cluster.control(nodes=[node], processes=False, bookkeeping={"log": ["hello"]})
    cluster.apply(job("many", "true", pods=count))
    wait(lambda: cluster.job("many")["status"].get("ready") == count, what="the pods")
    name = cluster.pods(run="many")[-1]["metadata"]["name"]
    assert cluster.log(name) == "hello\n"


def test_many_pods_are_simulated_without_processes(cluster: Cluster) -> None:
    _kept_in_the_books(cluster, 100)


@pytest.mark.soak
def test_a_thousand_pods_are_simulated_within_seconds(cluster: Cluster) -> None:
    _kept_in_the_books(cluster, 1000)


def _replicas(count: int, command: list[str], policy: str) -> dict[str, Any]:
    container = {"name": "pytorch", "image": IMAGE, "command": command}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    return {"replicas": count, "restartPolicy": policy, "template": template}


def _custom(cluster: Cluster, group: str, plural: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.get(f"/apis/{group}/namespaces/{NAMESPACE}/{plural}/{name}")
    return found


def _served(cluster: Cluster, operator: str, group: str) -> None:
    cluster.control(operators=[operator])
    wait(lambda: group in {each["name"] for each in cluster.get("/apis")["groups"]}, what=group)


def test_a_pytorchjob_has_a_rendezvous_and_restarts_pods_by_exit_code(cluster: Cluster) -> None:
    _served(cluster, "pytorchjob", "kubeflow.org")
    script = "env | grep PET_ | sort; getent hosts elastic-worker-0; exit 203"
    cluster.apply(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "elastic"},
            "spec": {
                "nprocPerNode": "2",
                "elasticPolicy": {
                    "rdzvBackend": "c10d",
                    "minReplicas": 1,
                    "maxReplicas": 2,
                    "maxRestarts": 3,
                },
                "runPolicy": {"cleanPodPolicy": "Running"},
                "pytorchReplicaSpecs": {"Worker": _replicas(1, ["sh", "-c", script], "ExitCode")},
            },
        }
    )
    place = ("kubeflow.org/v1", "pytorchjobs", "elastic")
    wait(lambda: "Restarting" in conditions(_custom(cluster, *place)), what="a restart")
    wait(lambda: "SuccessfulCreatePod" in _reasons(cluster), what="the event")
    pods = [made for made in cluster.events("SuccessfulCreatePod") if made == "Created pod: elastic-worker-0"]
    assert pods
    container = wait(cluster.pods, what="a pod")[0]["spec"]["containers"][0]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["PET_RDZV_ENDPOINT"] == "elastic-worker-0:23456"
    assert variables["PET_NNODES"] == "1:2"
    assert variables["PET_MAX_RESTARTS"] == "3"
    cluster.patch(
        f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs/elastic",
        {"spec": {"runPolicy": {"suspend": True}}},
    )
    wait(lambda: "Suspended" in conditions(_custom(cluster, *place)), what="the suspension")
    wait(lambda: not cluster.pods(), what="the pods' end")


def _reasons(cluster: Cluster) -> set[str]:
    return {event["reason"] for event in cluster.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"]}


def test_a_trainjob_runs_as_a_job_of_the_jobset_of_its_runtime(cluster: Cluster) -> None:
    _served(cluster, "trainjob", "trainer.kubeflow.org")
    group = "trainer.kubeflow.org/v1alpha1"
    runtimes = f"/apis/{group}/clustertrainingruntimes"
    wait(lambda: cluster.get(runtimes)["items"], what="the runtime that comes with it")
    script = "echo $PET_NNODES $PET_NODE_RANK $PET_MASTER_ADDR"
    cluster.apply(
        {
            "apiVersion": group,
            "kind": "TrainJob",
            "metadata": {"name": "tj"},
            "spec": {
                "runtimeRef": {"name": "torch-distributed"},
                "trainer": {"numNodes": 2, "image": IMAGE, "command": ["sh", "-c"], "args": [script]},
            },
        }
    )
    wait(lambda: "Complete" in conditions(_custom(cluster, group, "trainjobs", "tj")), what="the end")
    logs = sorted(cluster.log(pod["metadata"]["name"]) for pod in cluster.pods())
    assert logs == ["2 0 tj-node-0-0.tj\n", "2 1 tj-node-0-0.tj\n"]
    status = _custom(cluster, group, "trainjobs", "tj")["status"]
    assert status["jobsStatus"][0] | {"name": "node", "succeeded": 1} == status["jobsStatus"][0]


def _rayjob(entrypoint: str, **spec: Any) -> dict[str, Any]:
    def group(container: str, **more: Any) -> dict[str, Any]:
        variables = [{"name": "RAY_USAGE_STATS_ENABLED", "value": "0"}, {"name": "HOME", "value": "/tmp"}]  # noqa: S108
        made = {"name": container, "image": IMAGE, "env": variables}
        return {"rayStartParams": {"num-cpus": "1"}, "template": {"spec": {"containers": [made]}}, **more}

    workers = group("worker", groupName="node", replicas=1, minReplicas=1, maxReplicas=1)
    cluster = {
        "authOptions": {"mode": "token"},
        "headGroupSpec": group("head"),
        "workerGroupSpecs": [workers],
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "r"},
        "spec": {"entrypoint": entrypoint, "rayClusterSpec": cluster, **spec},
    }


def test_a_rayjob_starts_a_ray_cluster_or_reports_missing_ray(
    cluster: Cluster,
) -> None:
    _served(cluster, "rayjob", "ray.io")
    cluster.control(processes=False)
    cluster.apply(_rayjob("true", suspend=True))
    place = ("ray.io/v1", "rayjobs", "r")
    wait(lambda: _status(cluster, *place).get("jobDeploymentStatus") == "Suspended", what="the suspension")
    cluster.patch(f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayjobs/r", {"spec": {"suspend": False}})
    wait(lambda: _status(cluster, *place)["jobDeploymentStatus"] != "Suspended", what="the start")
    status = _status(cluster, *place)
    if find_spec("ray") is None or os.getuid():
        assert (status["jobDeploymentStatus"], status["jobStatus"]) == ("Failed", "FAILED")
        assert "the Ray cluster did not come up" in status["message"]
        return
    wait(lambda: len(cluster.pods()) == 2, what="the pods")
    # The cluster is there, and no one answers at its head: the operator asks on, and ends nothing.
    wait(lambda: _status(cluster, *place)["jobDeploymentStatus"] == "Running", what="the cluster")
    assert _status(cluster, *place).get("jobStatus") is None
    commands = sorted(pod["spec"]["containers"][0]["args"][0] for pod in cluster.pods())
    address = f"{status['rayClusterName']}-head-svc.{NAMESPACE}.svc.cluster.local:6379"
    assert f"ray start --address={address} " in commands[0]
    assert "ray start --head " in commands[1]


@pytest.mark.soak
def test_a_rayjob_really_runs_in_ray(cluster: Cluster) -> None:
    if find_spec("ray") is None or os.getuid():
        pytest.skip("needs ray, and to be root")
    _served(cluster, "rayjob", "ray.io")
    cluster.apply(_rayjob("python -c 'import ray; ray.init(); assert len(ray.nodes()) == 2'"))
    place = ("ray.io/v1", "rayjobs", "r")
    ends = ("Complete", "Failed")
    wait(lambda: _status(cluster, *place).get("jobDeploymentStatus") in ends, what="the end", timeout_s=120)
    status = _status(cluster, *place)
    assert status["jobStatus"] == "SUCCEEDED", status["message"]


@pytest.mark.soak
def test_ranks_of_several_pods_all_reduce_with_gloo(cluster: Cluster) -> None:
    cluster.apply(service("sum"))
    program = (
        "import torch, torch.distributed as d\n"
        "d.init_process_group('gloo')\n"
        "x = torch.ones(1) * (d.get_rank() + 1)\n"
        "d.all_reduce(x)\n"
        "print(d.get_world_size(), int(x.item()), flush=True)\n"
    )
    words = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sum"}, "data": {"x.py": program}}
    cluster.apply(words)
    script = (
        "[ $JOB_COMPLETION_INDEX = 0 ] && host=1 || host=0; exec torchrun --nnodes=2 --nproc-per-node=2 "
        "--rdzv-backend=c10d --rdzv-endpoint=sum-0.sum:29400 --rdzv-id=s --rdzv-conf=is_host=$host "
        "--local-addr=$(hostname).sum /etc/sum/x.py"
    )
    spec = {
        "volumes": [{"name": "x", "configMap": {"name": "sum"}}],
        "container": {
            "volumeMounts": [{"name": "x", "mountPath": "/etc/sum"}],
            "env": [
                {"name": "OMP_NUM_THREADS", "value": "1"},
                {"name": "GLOO_SOCKET_IFNAME", "value": "eth0"},
            ],
        },
    }
    cluster.apply(job("sum", "sh", "-c", script, pods=2, pod=spec))
    wait(lambda: {"Complete", "Failed"} & set(conditions(cluster.job("sum"))), what="the end", timeout_s=120)
    lines = [
        line for pod in cluster.pods(run="sum") for line in cluster.log(pod["metadata"]["name"]).splitlines()
    ]
    assert [line for line in lines if line == "4 10"] == ["4 10"] * 4, lines


def _status(cluster: Cluster, group: str, plural: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = _custom(cluster, group, plural, name).get("status", {})
    return found


def test_a_cronjob_starts_a_job_at_its_scheduled_minute(cluster: Cluster) -> None:
    template = pod("x", "true")["spec"]
    spec = {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": {"spec": template}}}}
    cluster.apply({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": spec})
    assert not cluster.get(_JOBS)["items"]
    cluster.control(advance_s=300)
    wait(
        lambda: [each for each in cluster.get(_JOBS)["items"] if "Complete" in conditions(each)], what="a run"
    )
