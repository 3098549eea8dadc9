"""An API server takes every manifest as it is, and once it has it, has nothing to change."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from cloudrec.kube.client import Kube
from cloudrec.manifests import Guarding, guard_objects, probe_objects, run_objects
from tests.contract.kubernetes.support import Server
from tests.contract.kubernetes.support_runs import await_true
from tests.unit.manifests.support_matrix import FAMILIES, IMAGE, profile, workload

_KINDS = {"pytorchjob": "kubeflow.org/v1/PyTorchJob", "trainjob": "trainer.kubeflow.org/v1alpha1/TrainJob"}
_OPERATORS = {**_KINDS, "rayjob": "ray.io/v1/RayJob"}


@pytest.mark.parametrize("launcher", ["torchrun", *_OPERATORS])
def test_every_run_is_taken(server: Server, kube: Kube, launcher: str) -> None:
    if launcher in _OPERATORS and not kube.kinds.has(_OPERATORS[launcher]):
        if not server.endpoint:
            pytest.skip(f"this server has no operator for {launcher}")
        server.control(operators=list(_OPERATORS))
        await_true(lambda: kube.kinds.has(_OPERATORS[launcher]))  # a definition takes a moment
    for family, known in FAMILIES.items():
        target = replace(known, namespace=server.namespace)
        for each in run_objects(launcher, workload(family), target, profile(target)):
            made = kube.apply(each, dry_run=each["kind"] != "TrainingRuntime")  # whose job must find it
            assert made["metadata"]["name"] == each["metadata"]["name"]


def test_probe_and_guard_are_taken(server: Server, kube: Kube) -> None:
    target = replace(FAMILIES["aws-p5"], namespace=server.namespace)
    probe = probe_objects(workload(), target, profile(target))
    for each in (*probe, *guard_objects(target, Guarding(cluster="c", owner="ann", image=IMAGE))):
        kube.apply(each, dry_run=True)


def test_what_is_applied_again_changes_nothing(server: Server, kube: Kube) -> None:
    target = replace(FAMILIES["aws-p5"], namespace=server.namespace)
    objects = [
        each
        for each in run_objects("torchrun", workload(run="twice"), target, profile(target))
        if each["kind"] in ("ConfigMap", "NetworkPolicy", "Service")
    ]
    versions = [kube.apply(each)["metadata"]["resourceVersion"] for each in objects]
    assert [kube.apply(each)["metadata"]["resourceVersion"] for each in objects] == versions


def test_a_thousand_workers_are_rendered_and_applied_in_ten_seconds(server: Server, kube: Kube) -> None:
    target = replace(FAMILIES["aws-p5"], namespace=server.namespace)
    begin = time.perf_counter()
    for each in run_objects("torchrun", workload(nodes=1000, min_nodes=1000), target, profile(target)):
        kube.apply(each, dry_run=True)
    assert time.perf_counter() - begin < 10
