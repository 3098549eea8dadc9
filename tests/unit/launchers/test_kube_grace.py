"""The grace period of pods."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.kubernetes.manifests.commands import agent_arguments
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.kubernetes.workloads import workload_of

CLUSTER = ClusterTarget(kubeconfig="config", context="c", namespace="default", service_account="default")


@pytest.mark.parametrize(
    ("notices", "drains", "notice_s", "wanted", "given"),
    [
        pytest.param("gcp", False, 15, 120.0, 15, id="machines that GKE takes within 15 s"),
        pytest.param("", True, 120, 200.0, 120, id="machines that EKS drains within 120 s"),
        pytest.param("", True, 120, 60.5, 61, id="less than the notice"),
        pytest.param("", False, 15, 120.0, 120, id="machines that no one takes"),
        pytest.param("gcp", False, 0, 120.0, 120, id="on-demand machines with a metadata service"),
        pytest.param("gcp", False, 105, 120.0, 105, id="a spot pool of GKE with 120 s of shutdown grace"),
    ],
)
def test_the_grace_period_of_a_pod_is_limited_by_the_preemption_notice(
    notices: str, notice_s: int, wanted: float, given: int, *, drains: bool
) -> None:
    target = replace(CLUSTER, notices=notices, drains=drains, notice_s=notice_s)
    spec = RunSpec(name="r", launcher="torchrun", stop_grace_s=wanted, target=target, image="i")
    assert workload_of(spec, launch=1, owner="somebody").grace_s == given


@pytest.mark.parametrize(
    ("notice_s", "wanted", "seconds"),
    [
        pytest.param(105, 120.0, ["100", "100"], id="the node pool's time"),
        pytest.param(15, 120.0, ["10", "10"], id="GKE's default"),
        pytest.param(105, 60.0, ["55", "55"], id="the user's grace, with which the kubelet ends the pod"),
        pytest.param(0, 120.0, ["115"], id="no preemption"),
    ],
)
def test_a_trainer_takes_the_time_of_the_node_pool_for_a_signal_and_for_a_notice(
    notice_s: int, wanted: float, seconds: list[str]
) -> None:
    target = replace(CLUSTER, notices="gcp", notice_s=notice_s)
    spec = RunSpec(name="r", launcher="torchrun", stop_grace_s=wanted, target=target, image="i")
    words = agent_arguments(
        workload_of(spec, launch=1, owner="somebody"), target, rendezvous="here", address="here"
    )
    given = {flag: value for flag, value in pairwise(words) if flag.endswith("_seconds")}
    assert list(given.values()) == seconds
    assert list(given)[1:] == (["--preemption_notice_seconds"] if notice_s else [])
