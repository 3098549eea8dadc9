"""The grace period of pods."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudrec.kubernetes.client.target import ClusterTarget
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
    ],
)
def test_the_grace_period_of_a_pod_is_limited_by_the_preemption_notice(
    notices: str, notice_s: int, wanted: float, given: int, *, drains: bool
) -> None:
    target = replace(CLUSTER, notices=notices, drains=drains, notice_s=notice_s)
    spec = RunSpec(name="r", launcher="torchrun", stop_grace_s=wanted, target=target, image="i")
    assert workload_of(spec, launch=1, owner="somebody").grace_s == given
