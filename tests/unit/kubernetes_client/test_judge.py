"""A run's state follows from its object and its pods."""

from __future__ import annotations

import pytest

from cloudrec.launchers import kubernetes
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.kubernetes.operators.pytorchjob import LAUNCHER as PYTORCHJOB
from cloudrec.launchers.kubernetes.operators.rayjob import LAUNCHER as RAYJOB
from cloudrec.launchers.kubernetes.operators.torchrun import LAUNCHER as TORCHRUN
from cloudrec.launchers.kubernetes.operators.trainjob import LAUNCHER as TRAINJOB
from cloudrec.launchers.kubernetes.run_state import STOP_REASON, KubernetesSnapshot, judge
from tests.unit.kubernetes_client.support_objects import job, pod


def _sight(**given: object) -> KubernetesSnapshot:
    usual = {"engine": TORCHRUN.engine, "job": job(), "pods": (), "nodes": 2, "min_nodes": 2}
    return KubernetesSnapshot(**{**usual, **given})  # type: ignore[arg-type]  # a test's own shorthand


def test_a_run_is_pending_with_a_reason_until_all_pods_run() -> None:
    waiting = pod("run-1", "Pending", unschedulable="0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    status = judge(_sight(pods=[pod("run-0"), waiting]))
    assert status.state is RunState.PENDING
    assert "2 lack nvidia.com/gpu" in (status.cause or "")
    assert [(each.name, each.state) for each in status.workers] == [
        ("run-0", "Running"),
        ("run-1", "Pending"),
    ]


def test_a_run_of_a_managed_cluster_waits_for_its_keeper_and_not_for_its_user() -> None:
    message = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    waiting = [pod(f"run-{rank}", "Pending", unschedulable=message) for rank in range(2)]
    status = judge(_sight(job=job(labels={"cloudrec/nodes": "2"}), pods=waiting))
    assert status.state is RunState.PENDING
    assert "the cluster's keeper creates its nodes" in (status.cause or "")
    assert "cloudrec up" not in (status.cause or "")
    assert "cloudrec up" in (judge(_sight(pods=waiting)).cause or "")


def test_a_run_that_the_keeper_has_suspended_waits_and_one_that_its_user_stopped_does_not() -> None:
    queued = job(suspend=True, annotations={"cloudrec/queued": "true"})
    status = judge(_sight(job=queued))
    assert status.state is RunState.PENDING
    assert "waits for its turn" in (status.cause or "")
    assert judge(_sight(job=queued, stop_asked=True)).state is RunState.INTERRUPTED


def test_a_run_is_running_when_all_pods_run() -> None:
    assert judge(_sight(pods=[pod("run-0"), pod("run-1")])).state is RunState.RUNNING


def test_a_run_is_running_until_its_last_pod_has_finished() -> None:
    pods = [pod("run-0", "Succeeded", code=0), pod("run-1")]
    assert judge(_sight(pods=pods, has_run=True)).state is RunState.RUNNING


def test_a_run_that_lost_a_pod_restarts_and_names_the_preempted_node() -> None:
    lost = pod("run-1-old", "Failed", code=75, disrupted="EvictionByEvictionAPI")
    status = judge(_sight(pods=[pod("run-0"), lost], has_run=True))
    assert status.state is RunState.RESTARTING
    assert "run-1-old: it was taken from node-a: its node was drained" in (status.cause or "")


def test_an_elastic_run_with_fewer_nodes_is_reported_as_such() -> None:
    waiting = pod("run-1", "Pending", unschedulable="0/1 nodes are available: 1 Insufficient cpu.")
    status = judge(_sight(pods=[pod("run-0"), waiting], min_nodes=1, has_run=True))
    assert status.state is RunState.RUNNING
    assert (status.cause or "").startswith("1 of 2 nodes are at work")


def test_a_failed_run_names_the_first_failed_pod_with_its_message() -> None:
    first = pod("run-1", "Failed", code=65, message="column 3 is missing", finished="2026-11-20T10:00:05Z")
    later = pod("run-0", "Failed", code=1, finished="2026-11-20T10:00:01Z")
    failed = job({"type": "Failed", "reason": "PodFailurePolicy", "message": "exit code 65"})
    status = judge(_sight(job=failed, pods=[later, first]))
    assert status.state is RunState.FAILED
    assert (status.cause or "").startswith("pod run-1: the trainer refuses its data: column 3 is missing")


def test_a_job_that_failed_without_pods_has_the_message_of_its_controller() -> None:
    failed = job({"type": "Failed", "reason": "DeadlineExceeded", "message": "Job was active too long"})
    assert judge(_sight(job=failed)).cause == "DeadlineExceeded: Job was active too long"


def test_an_exceeded_quota_is_reported_while_the_run_is_pending() -> None:
    event = {
        "reason": "FailedCreate",
        "message": "exceeded quota: gpus, requested: 8, used: 8, limited: 8",
        "involvedObject": {"name": "run"},
    }
    status = judge(_sight(events=[event]))
    assert status.state is RunState.PENDING
    assert "quota" in (status.cause or "")


@pytest.mark.parametrize(
    ("given", "state", "cause"),
    [
        ({"stop_asked": True}, RunState.INTERRUPTED, "stopped on request"),
        ({"stop_asked": True, "pods": [pod(deleting=True)]}, RunState.RUNNING, "stopped on request: 1 of"),
        ({"queue": "gpus"}, RunState.PENDING, "it waits in the queue 'gpus'"),
        ({}, RunState.INTERRUPTED, "suspended by another client"),
    ],
)
def test_a_suspended_run_is_stopped_queued_or_suspended_by_others(
    given: dict[str, object], state: RunState, cause: str
) -> None:
    status = judge(_sight(job=job({"type": "Suspended"}, suspend=True), **given))
    assert status.state is state
    assert (status.cause or "").startswith(cause)


def test_a_reason_recorded_inside_the_cluster_is_the_cause_of_the_run() -> None:
    ended = job({"type": "Suspended"}, suspend=True, annotations={STOP_REASON: "its budget is spent"})
    assert judge(_sight(job=ended, queue="gpus")).cause == "its budget is spent"


def test_a_run_whose_job_was_deleted_has_failed() -> None:
    status = judge(_sight(job=None))
    assert (status.state, status.cause) == (
        RunState.FAILED,
        "its Job is no longer in the cluster: another client deleted it",
    )


@pytest.mark.parametrize(
    ("engine", "status", "state"),
    [
        (PYTORCHJOB.engine, {"conditions": [{"type": "Succeeded", "status": "True"}]}, "succeeded"),
        (PYTORCHJOB.engine, {"conditions": [{"type": "Restarting", "status": "True"}]}, "active"),
        (TRAINJOB.engine, {"conditions": [{"type": "Complete", "status": "True"}]}, "succeeded"),
        (TRAINJOB.engine, {"conditions": [{"type": "Failed", "status": "False"}]}, "active"),
        (TORCHRUN.engine, {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}, "active"),
        (RAYJOB.engine, {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}, "active"),
        (RAYJOB.engine, {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, "succeeded"),
        (RAYJOB.engine, {"jobDeploymentStatus": "Complete", "jobStatus": "FAILED"}, "failed"),
        (RAYJOB.engine, {"jobDeploymentStatus": "Failed"}, "failed"),
        (RAYJOB.engine, {"jobDeploymentStatus": "Suspended"}, "suspended"),
    ],
)
def test_the_conditions_of_every_operator_are_read(
    engine: kubernetes.engine.JobOperator, status: dict[str, object], state: str
) -> None:
    assert engine.phase({"status": status}).state == state


_RAYS_WORDS = (
    "Job entrypoint command failed with exit code 65, last available logs (truncated to 20,000 chars):\n"
)


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (
            f"{_RAYS_WORDS}[driver] agent 0 ended with 65\nerror: rank 0: no such file\n",
            "rank 0: no such file",
        ),
        (
            f"{_RAYS_WORDS}[driver] agent 0 is at h",
            "AppFailed: Job entrypoint command failed with exit code 65",
        ),
        ("no workers came", "AppFailed: no workers came"),
    ],
)
def test_a_failed_rayjob_has_the_message_of_its_driver_and_no_log(message: str, cause: str) -> None:
    status = {"jobDeploymentStatus": "Failed", "reason": "AppFailed", "message": message}
    sight = _sight(engine=RAYJOB.engine, job={"metadata": {"name": "run"}, "status": status})
    assert judge(sight).cause == cause


def test_the_suspend_field_of_each_operator_is_at_its_path() -> None:
    assert TORCHRUN.engine.suspension() == {"spec": {"suspend": True}}
    assert PYTORCHJOB.engine.suspension() == {"spec": {"runPolicy": {"suspend": True}}}


def test_a_thousand_pods_are_judged_quickly() -> None:
    pods = [pod(f"run-{index}") for index in range(1000)]
    status = judge(_sight(pods=pods, nodes=1000, min_nodes=1000))
    assert status.state is RunState.RUNNING
    assert len(status.workers) == 1000
