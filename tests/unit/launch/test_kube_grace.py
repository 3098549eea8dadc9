"""How long pods have to end in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudrec.kube.target import Target
from cloudrec.launch._kube.workloads import workload_of
from cloudrec.launch.runspec import RunSpec

CLUSTER = Target(kubeconfig="config", context="c", namespace="default", service_account="default")


@pytest.mark.parametrize(
    ("notices", "notice_s", "wanted", "given"),
    [
        pytest.param("gcp", 15, 120.0, 15, id="machines that GKE takes within 15 s"),
        pytest.param("aws", 120, 60.5, 61, id="less than the notice"),
        pytest.param("", 15, 120.0, 120, id="machines that nobody takes"),
    ],
)
def test_a_pod_has_no_more_time_to_end_than_its_machine_leaves_it(
    notices: str, notice_s: int, wanted: float, given: int
) -> None:
    target = replace(CLUSTER, notices=notices, notice_s=notice_s)
    spec = RunSpec(name="r", launcher="torchrun", stop_grace_s=wanted, target=target.to_json(), image="i")
    assert workload_of(spec, launch=1, owner="somebody").grace_s == given
