"""Causes and remedies derived from statuses and events."""

from __future__ import annotations

import pytest

from cloudrec.kubernetes.health.causes import amount, event_cause, is_disrupted, pod_cause
from tests.unit.kubernetes_client.support_objects import node, pod

NO_GPUS = (
    "0/4 nodes are available: 2 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint "
    "{spot: true}, 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/4 nodes are available."
)


def _kind(**given: object) -> tuple[str, str, str]:
    cause = pod_cause(pod(**given))  # type: ignore[arg-type]  # a test's own shorthand
    assert cause is not None
    return cause.kind, cause.text, cause.remedy


@pytest.mark.parametrize(
    ("message", "told", "remedy"),
    [
        ("failed to pull: 401 Unauthorized", "may not pull the image registry/trainer:1", "image push"),
        ("manifest unknown: not found", "there is no image registry/trainer:1", "image build"),
        ("dial tcp: i/o timeout", "cannot be pulled", "reach the registry"),
    ],
)
def test_private_missing_and_unreachable_images_are_distinguished(
    message: str, told: str, remedy: str
) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": message}
    kind, text, advice = _kind(phase="Pending", waiting=waiting)
    assert kind == "ImagePullBackOff"
    assert told in text
    assert remedy in advice


def test_an_unschedulable_pod_is_reported_with_the_missing_and_the_available_resources() -> None:
    nodes = [node("a", gpus="0"), node("b", gpus="4")]
    cause = pod_cause(pod(phase="Pending", unschedulable=NO_GPUS), nodes=nodes)
    assert cause is not None
    assert cause.kind == "Unschedulable"
    assert "2 lack nvidia.com/gpu (the most that a node offers is 4)" in cause.text
    assert "taint spot: true" in cause.text
    assert "another kind" in cause.text


def test_the_remedy_for_a_device_that_no_node_offers_is_its_plugin() -> None:
    cause = pod_cause(pod(phase="Pending", unschedulable=NO_GPUS), nodes=[node("a")])
    assert cause is not None
    assert "device plugin" in cause.remedy


@pytest.mark.parametrize(
    ("code", "reason", "kind", "passing"),
    [
        (64, "", "BadConfig", False),
        (65, "", "BadData", False),
        (69, "", "Unfit", False),
        (75, "", "Interrupted", True),
        (203, "", "Interrupted", True),
        (1, "", "Crashed", False),
        (137, "OOMKilled", "OOMKilled", False),
    ],
)
def test_every_exit_code_is_reported_with_its_meaning_and_the_message_of_the_pod(
    code: int, reason: str, kind: str, *, passing: bool
) -> None:
    cause = pod_cause(pod(phase="Failed", code=code, reason=reason, message="no EFA device"))
    assert cause is not None
    assert (cause.kind, cause.is_passing) == (kind, passing)
    if kind != "OOMKilled":
        assert "no EFA device" in cause.text


def test_the_remedy_of_a_pod_overrides_the_general_one() -> None:
    ended = pod(phase="Failed", code=65, message="no dataset.json (upload it: `cloudrec data push`)")
    cause = pod_cause(ended)
    assert cause is not None
    assert cause.text == "the trainer refuses its data: no dataset.json"
    assert cause.remedy == "upload it: `cloudrec data push`"


def test_a_pod_of_a_preempted_node_is_preempted_with_any_exit_code() -> None:
    taken = pod(phase="Failed", code=137, disrupted="DeletionByTaintManager")
    cause = pod_cause(taken)
    assert is_disrupted(taken)
    assert cause is not None
    assert cause.is_passing
    assert cause.text == "it was taken from node-a: its node was lost or is being taken away"


def test_running_and_finished_pods_have_no_cause() -> None:
    assert pod_cause(pod()) is None
    assert pod_cause(pod(phase="Succeeded", code=0)) is None


def test_quota_mount_and_network_errors_are_reported_from_events() -> None:
    quota = event_cause({"reason": "FailedCreate", "message": 'pods "x" is forbidden: exceeded quota: gpus'})
    mount = event_cause({"reason": "FailedMount", "message": "configmap not found"})
    waiting = pod(phase="Pending")
    sandbox = pod_cause(waiting, events=[{"reason": "FailedCreatePodSandBox", "message": "no IP"}])
    assert quota is not None
    assert quota.kind == "QuotaExceeded"
    assert mount is not None
    assert mount.kind == "FailedMount"
    assert sandbox is not None
    assert "addresses" in sandbox.remedy
    assert event_cause({"reason": "Scheduled", "message": "fine"}) is None


def test_kubernetes_quantities_are_parsed() -> None:
    assert [amount(each) for each in ("500m", "8", "16Gi", "5120Mi", "1k", "x", "")] == [
        0.5,
        8.0,
        16 * 2**30,
        5120 * 2**20,
        1000.0,
        0.0,
        0.0,
    ]
