"""What a run asks of the keeper of a managed cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloudrec.app.managed.check import refuse_wishes
from cloudrec.errors import SpecError
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.kubernetes.manifests import run_objects
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.kubernetes.workloads import profile_for, workload_of
from cloudrec.providers.base.access import HostAccess, KubernetesAccess
from cloudrec.spec.models import ClusterSpec

PLAIN = ClusterTarget(kubeconfig="config", context="c", namespace="default", service_account="default")
MANAGED = replace(PLAIN, is_managed=True)
DEADLINE = {"deadline": "30h", "work": "24h"}


def spec_of(target: ClusterTarget, settings: dict[str, Any]) -> RunSpec:
    return RunSpec(name="r", launcher="torchrun", nodes=2, target=target, image="i", settings=settings)


def test_a_run_on_a_managed_cluster_has_its_wishes_as_labels_of_its_job_and_stays_in_one_zone() -> None:
    workload = workload_of(spec_of(MANAGED, {**DEADLINE, "max_price": 20}), launch=1, owner="ann")
    objects = run_objects("torchrun", workload, MANAGED, profile_for(MANAGED))
    (job,) = [each for each in objects if each["kind"] == "Job"]
    labels = job["metadata"]["labels"]
    wishes = {key: labels[f"cloudrec/{key}"] for key in ("nodes", "deadline-s", "work-s", "max-price")}
    assert wishes == {"nodes": "2", "deadline-s": "108000", "work-s": "86400", "max-price": "20"}
    affinity = job["spec"]["template"]["spec"]["affinity"]
    (term,) = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    nodes = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    own = {"key": "cloudrec.io/run", "operator": "In", "values": ["r"]}
    # Nodes that the keeper has given to another run are none of them.
    assert [each["matchExpressions"] for each in nodes] == [
        [own],
        [{"key": "cloudrec.io/run", "operator": "DoesNotExist"}],
    ]
    assert term["topologyKey"] == "topology.kubernetes.io/zone"
    assert (
        term["labelSelector"]["matchLabels"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    )


def test_a_run_elsewhere_has_no_wishes() -> None:
    assert workload_of(spec_of(PLAIN, {}), launch=1, owner="ann").wishes == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"deadline": "30h"}, "needs the time that the run trains"),
        ({"work": "24h"}, "needs the time that the run trains"),
        ({"deadline": "20h", "work": "24h"}, "do not fit into a deadline of 20h"),
        ({"deadline": "soon", "work": "24h"}, "train.settings.deadline is 'soon'"),
        ({"max_price": -1.0}, "train.settings.max_price is -1.0"),
        ({"max_price": True}, "train.settings.max_price is True"),
    ],
)
def test_a_wish_that_no_keeper_can_keep_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        workload_of(spec_of(MANAGED, settings), launch=1, owner="ann")
    assert caught.value.exit_code == 2
    assert caught.value.remedy or "not negative" in caught.value.message


@pytest.mark.parametrize("settings", [DEADLINE, {"max_price": 3.5}])
def test_a_wish_without_a_keeper_is_refused(settings: dict[str, Any]) -> None:
    cluster = ClusterSpec(provider="local")
    here = HostAccess(launchers=("local",), nodes=1, gpus_per_node=0, cores_per_node=2, storage="")
    plain = KubernetesAccess(
        launchers=("torchrun",), nodes=1, gpus_per_node=0, cores_per_node=2, storage="", target=PLAIN
    )
    for access in (here, plain):
        with pytest.raises(SpecError, match="has no managed nodes") as caught:
            refuse_wishes(cluster, access, settings)
        assert "--managed" in (caught.value.remedy or "")
    refuse_wishes(cluster, replace(plain, target=MANAGED), settings)
    refuse_wishes(cluster, here, {})
