"""An API server accepts every manifest unchanged, and applying it again changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.manifests import Guarding, guard_objects, probe_objects, run_objects
from tests.contract.kubernetes.support import Server
from tests.contract.kubernetes.support_runs import await_true
from tests.unit.kubernetes_manifests.support_matrix import FAMILIES, IMAGE, profile, workload

_KINDS = {"pytorchjob": "kubeflow.org/v1/PyTorchJob", "trainjob": "trainer.kubeflow.org/v1alpha1/TrainJob"}
_OPERATORS = {**_KINDS, "rayjob": "ray.io/v1/RayJob"}


@pytest.mark.parametrize("launcher", ["torchrun", *_OPERATORS])
def test_the_api_server_accepts_every_run_manifest(server: Server, kube: Kube, launcher: str) -> None:
    if launcher in _OPERATORS and not kube.kinds.has(_OPERATORS[launcher]):
        server.serve_kinds(launcher)
        await_true(lambda: kube.kinds.has(_OPERATORS[launcher]))  # a CustomResourceDefinition takes a moment
    for family, known in FAMILIES.items():
        target = replace(known, namespace=server.namespace)
        for each in run_objects(launcher, workload(family), target, profile(target)):
            made = kube.apply(each, dry_run=each["kind"] != "TrainingRuntime")  # its job must find it
            assert made["metadata"]["name"] == each["metadata"]["name"]


def test_the_api_server_accepts_the_probe_and_guard_manifests(server: Server, kube: Kube) -> None:
    target = replace(FAMILIES["aws-p5"], namespace=server.namespace)
    probe = probe_objects(workload(), target, profile(target))
    for each in (*probe, *guard_objects(target, Guarding(cluster="c", owner="ann", image=IMAGE))):
        kube.apply(each, dry_run=True)


def test_a_second_apply_changes_nothing(server: Server, kube: Kube) -> None:
    target = replace(FAMILIES["aws-p5"], namespace=server.namespace)
    guard = guard_objects(target, Guarding(cluster="c", owner="ann", image=IMAGE))
    probe = probe_objects(workload(run="twice"), target, profile(target))
    objects = [
        each
        for each in (*run_objects("torchrun", workload(run="twice"), target, profile(target)), *probe, *guard)
        if each["kind"] not in ("Job", "CronJob", "PodDisruptionBudget")  # controllers change it too
    ]
    versions = [kube.apply(each)["metadata"]["resourceVersion"] for each in objects]
    assert [kube.apply(each)["metadata"]["resourceVersion"] for each in objects] == versions


def test_a_run_of_a_thousand_workers_is_a_few_objects(server: Server, kube: Kube) -> None:
    target = replace(FAMILIES["aws-p5"], namespace=server.namespace)
    objects = run_objects("torchrun", workload(nodes=1000, min_nodes=1000), target, profile(target))
    for each in objects:
        kube.apply(each, dry_run=True)
    assert len(objects) == len(run_objects("torchrun", workload(), target, profile(target)))
