"""Kueue's queues: made of a cluster's nodes, by Kueue's schemas, and read before a run waits in one."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import PreflightError, SpecError
from cloudrec.kubernetes.addons import manage
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import InvalidError
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.kubernetes.health import health
from cloudrec.kubernetes.queues.kinds import API, CLUSTER_QUEUE, FLAVOR, LOCAL_QUEUE, TOPOLOGY
from cloudrec.launchers import launcher
from cloudrec.launchers.kubernetes.context import disconnect
from tests.contract.kubernetes.support import Server
from tests.contract.kubernetes.support_runs import IMAGE, Site, await_true

BLOCK, RACK = "cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"
TYPE = "node.kubernetes.io/instance-type"
WHOLE = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}
PLUGINS = ["nvidia-device-plugin", "efa-device-plugin"]
PAGES = {"hugepages-2Mi": "5120Mi"}
GPUS: dict[str, Any] = {"cpu": "96", "memory": "1000Gi", "ephemeral-storage": "100Gi", **WHOLE, **PAGES}
LABELS = {"pool": "gpu", BLOCK: "b1", RACK: "r1"}
LAUNCHERS = ("torchrun", "pytorchjob", "trainjob", "jobset", "rayjob")
TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def nodes(count: int, machine: str = "h100", labels: dict[str, str] = LABELS) -> dict[str, Any]:
    return {"name": machine, "count": count, "capacity": GPUS, "labels": {**labels, TYPE: machine}}


@pytest.fixture
def site(server: Server, tmp_path: Path) -> Iterator[Site]:
    server.control(nodes=[nodes(2)], processes=False, bookkeeping={}, operators=[], images={IMAGE: "present"})
    yield Site(server, tmp_path)
    disconnect()


@pytest.fixture
def kueue(site: Site, kube: Kube) -> Iterator[Callable[..., None]]:
    """Installs the queue of the cluster's nodes; afterwards all of Kueue's objects are gone."""
    if site.server.announcement is None:
        site.server.serve_kinds("kueue")
    else:
        site.server.control(crds=["kueue"])
    await_true(lambda: all(kube.kinds.has(kind) for kind in (LOCAL_QUEUE, CLUSTER_QUEUE, FLAVOR, TOPOLOGY)))
    yield lambda **changes: install(kube, target_of(site.server, **changes))
    for kind in (LOCAL_QUEUE, CLUSTER_QUEUE, FLAVOR, TOPOLOGY):
        for each in kube.list(kind):
            kube.delete(kind, each["metadata"]["name"], namespace=each["metadata"].get("namespace", ""))
    for name in ("cloudrec-addon-kueue-queues",):
        kube.delete("ConfigMap", name, namespace="kube-system")


def target_of(server: Server, **changes: Any) -> ClusterTarget:
    usual = {
        "resources": WHOLE,
        "topology": [BLOCK, RACK, "example.org/absent"],
        "node_selector": {"pool": "gpu"},
        "tolerations": [TAINT],
        "fabric": "efa",
    }
    return server.target(**{**usual, **changes})


def install(kube: Kube, target: ClusterTarget) -> None:
    manage.install(kube, "kueue-queues", target, cluster="c", owner="ann", report=lambda _: None, wait_s=0)


def one(kube: Kube, kind: str) -> dict[str, Any]:
    (found,) = kube.list(kind)
    return found


def queued(site: Site, how: str = "torchrun", **changes: Any) -> Any:
    settings = {"queue": "cloudrec", "cpus": 8, "memory_gib": 64, **changes.pop("settings", {})}
    own = {"resources": WHOLE, "node_selector": {"pool": "gpu"}, "topology": [BLOCK, RACK], "fabric": "efa"}
    return site.spec("queued", how, settings=settings, target={**own, "tolerations": [TAINT]}, **changes)


def test_the_queue_is_made_of_the_clusters_nodes(site: Site, kube: Kube, kueue: Callable[..., None]) -> None:
    kueue()
    topology, flavor, behind, front = (
        one(kube, kind) for kind in (TOPOLOGY, FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE)
    )
    levels = [each["nodeLabel"] for each in topology["spec"]["levels"]]
    assert levels == [BLOCK, RACK, "kubernetes.io/hostname"], "a level that no node has is left out"
    assert flavor["spec"]["nodeLabels"] == {"pool": "gpu"}
    assert flavor["spec"]["tolerations"] == [TAINT]
    assert flavor["spec"]["topologyName"] == topology["metadata"]["name"]
    (group,) = behind["spec"]["resourceGroups"]
    (quota,) = group["flavors"]
    assert quota["name"] == flavor["metadata"]["name"]
    found = {each["name"]: each["nominalQuota"] for each in quota["resources"]}
    assert found.keys() == GPUS.keys() == set(group["coveredResources"])
    assert (found["nvidia.com/gpu"], found["vpc.amazonaws.com/efa"]) == ("16", "64")
    selector = behind["spec"]["namespaceSelector"]
    assert selector["matchLabels"] == {"kubernetes.io/metadata.name": site.server.namespace}
    assert front["metadata"]["namespace"] == site.server.namespace
    assert front["spec"]["clusterQueue"] == behind["metadata"]["name"]
    for each in (topology, flavor, behind, front):
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "cloudrec"
        assert (labels["cloudrec/cluster"], labels["cloudrec/addon"]) == ("c", "kueue-queues")


def test_pods_of_daemon_sets_are_not_in_the_quota(site: Site, kube: Kube, kueue: Callable[..., None]) -> None:
    kueue()
    before = quotas(kube)
    container = {"name": "d", "image": IMAGE, "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}
    labels = {"app": "daemon"}
    kube.create(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "daemon", "namespace": site.server.namespace},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container], "tolerations": [{"operator": "Exists"}]},
                },
            },
        }
    )
    await_true(lambda: len(placed(kube, site.server.namespace, labels)) == 2)
    kueue()
    after = quotas(kube)
    kube.delete("DaemonSet", "daemon", namespace=site.server.namespace)
    await_true(lambda: not kube.list("Pod", namespace=site.server.namespace, labels=labels))
    assert before["cpu"] - after["cpu"] == 2 * 1500
    assert before["memory"] - after["memory"] == 2 * 1024


def placed(kube: Kube, namespace: str, labels: dict[str, str]) -> list[dict[str, Any]]:
    """The pods with these labels that are on a node."""
    found = kube.list("Pod", namespace=namespace, labels=labels)
    return [each for each in found if each["spec"].get("nodeName")]


def quotas(kube: Kube) -> dict[str, int]:
    """The quota of cores in thousandths, and of memory in MiB."""
    (quota,) = one(kube, CLUSTER_QUEUE)["spec"]["resourceGroups"][0]["flavors"]
    found = {each["name"]: each["nominalQuota"] for each in quota["resources"]}
    cores = str(found["cpu"])
    memory = str(found["memory"])
    return {
        "cpu": int(cores[:-1]) if cores.endswith("m") else int(cores) * 1000,
        "memory": int(memory[:-2]) * (1024 if memory.endswith("Gi") else 1),
    }


def test_each_machine_type_has_a_flavor_and_the_queue_follows_the_nodes(
    site: Site, kube: Kube, kueue: Callable[..., None]
) -> None:
    kueue()
    first = one(kube, FLAVOR)["metadata"]["name"]
    site.server.control(nodes=[nodes(3)])
    manage.converge(
        kube,
        target_of(site.server, built_in=PLUGINS),
        "c",
        "ann",
        lambda _: None,
        wait_s=0,
    )
    (quota,) = one(kube, CLUSTER_QUEUE)["spec"]["resourceGroups"][0]["flavors"]
    amounts = {each["name"]: str(each["nominalQuota"]) for each in quota["resources"]}
    assert (quota["name"], amounts["nvidia.com/gpu"]) == (first, "24")
    site.server.control(nodes=[nodes(1), nodes(2, "h200", {"pool": "gpu"})])
    kueue()
    flavors = {each["spec"]["nodeLabels"][TYPE]: each for each in kube.list(FLAVOR)}
    assert flavors.keys() == {"h100", "h200"}
    assert "topologyName" not in flavors["h200"]["spec"], "its nodes have no label of the network"
    assert first not in {each["metadata"]["name"] for each in flavors.values()}
    site.server.control(nodes=[])
    said: list[str] = []
    manage.converge(
        kube,
        target_of(site.server, built_in=PLUGINS),
        "c",
        "ann",
        said.append,
        wait_s=0,
    )
    assert any("no nodes for runs" in line for line in said)
    assert len(kube.list(FLAVOR)) == 2, "a queue stays as it is while there are no nodes"


def test_objects_of_others_are_never_changed(site: Site, kube: Kube, kueue: Callable[..., None]) -> None:
    body = {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": "team"}, "spec": {}}
    theirs = kube.create(body)
    place = {"name": "cloudrec", "namespace": site.server.namespace}
    queue = {"apiVersion": API, "kind": "LocalQueue", "metadata": place, "spec": {"clusterQueue": "team"}}
    kube.create(queue)
    with pytest.raises(PreflightError, match=r"LocalQueue cloudrec in .* exists already"):
        kueue()
    assert not kube.list(FLAVOR), "nothing is made before all owners are known"
    kube.delete(LOCAL_QUEUE, "cloudrec", namespace=site.server.namespace)
    kueue()
    gone = manage.remove(kube, "kueue-queues", report=lambda _: None)
    assert {each.kind for each in gone} == {"Topology", "ResourceFlavor", "ClusterQueue", "LocalQueue"}
    left = kube.get(CLUSTER_QUEUE, "team")
    assert left is not None
    assert left["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]
    assert not kube.list(FLAVOR) + kube.list(TOPOLOGY) + kube.list(LOCAL_QUEUE)


def test_a_cluster_without_nodes_gets_no_queue(site: Site, kueue: Callable[..., None]) -> None:
    site.server.control(nodes=[])
    with pytest.raises(PreflightError, match="no nodes for runs"):
        kueue()


@pytest.mark.parametrize("how", LAUNCHERS)
def test_pods_that_train_name_the_narrowest_part_of_the_network(
    site: Site, kueue: Callable[..., None], how: str
) -> None:
    kueue()
    plans = {}
    for wish in ("", "required", "anywhere"):
        engine, run = site.create(queued(site, how, settings={"topology": wish}))
        plans[wish] = list(levels(engine.dry_run(run, run.spec()).objects))
        shutil.rmtree(run.path)
    assert plans[""] == [("kueue.x-k8s.io/podset-preferred-topology", RACK)]
    assert plans["required"] == [("kueue.x-k8s.io/podset-required-topology", RACK)]
    assert plans["anywhere"] == []


def levels(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the annotations of the templates of pods that name a level."""
    if isinstance(value, dict):
        yield from ((key, each) for key, each in value.items() if "podset-" in key)
        value = list(value.values())
    for each in value if isinstance(value, list | tuple) else ():
        yield from levels(each)


def test_a_run_that_requires_a_topology_is_refused_without_one(
    site: Site, kueue: Callable[..., None]
) -> None:
    with pytest.raises(SpecError, match=r"topology is 'required' without train\.settings\.queue"):
        launcher("torchrun").preflight(queued(site, settings={"queue": "", "topology": "required"}))
    kueue(topology=[])
    spec = queued(site, settings={"topology": "required"})
    with pytest.raises(PreflightError, match="has no Topology"):
        launcher("torchrun").preflight(spec)


def flavors_gone(found: dict[str, Any]) -> None:
    found["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "gone"


def _quota(name: str, amount: str) -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        rows = found["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
        next(each for each in rows if each["name"] == name)["nominalQuota"] = amount

    return change


def uncovered(found: dict[str, Any]) -> None:
    group = found["spec"]["resourceGroups"][0]
    group["coveredResources"].remove("vpc.amazonaws.com/efa")
    rows = group["flavors"][0]["resources"]
    rows[:] = [each for each in rows if each["name"] != "vpc.amazonaws.com/efa"]


def held(found: dict[str, Any]) -> None:
    found["spec"]["stopPolicy"] = "Hold"


def unselected(found: dict[str, Any]) -> None:
    found["spec"]["namespaceSelector"] = {"matchLabels": {"team": "other"}}


def no_namespace(found: dict[str, Any]) -> None:
    found["spec"].pop("namespaceSelector")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (flavors_gone, "has the flavor 'gone', and there is no such ResourceFlavor"),
        (_quota("nvidia.com/gpu", "8"), "has a quota of 8 nvidia.com/gpu, and the run needs 16"),
        (_quota("memory", "100Gi"), "has a quota of 100Gi memory, and the run needs 128Gi"),
        (uncovered, "has no quota of vpc.amazonaws.com/efa, which the run's pods request"),
        (held, "admits no run: its stopPolicy is Hold"),
        (unselected, "its namespaceSelector does not select it"),
        (no_namespace, "its namespaceSelector does not select it"),
    ],
    ids=["flavor", "gpus", "memory", "cards", "held", "namespace", "no-namespace"],
)
def test_a_queue_that_cannot_admit_the_run_is_refused_with_the_reason(
    site: Site,
    kube: Kube,
    kueue: Callable[..., None],
    change: Callable[[dict[str, Any]], None],
    message: str,
) -> None:
    kueue()
    engine, spec = launcher("torchrun"), queued(site)
    engine.preflight(spec)
    found = copy.deepcopy(one(kube, CLUSTER_QUEUE))
    change(found)
    kube.delete(CLUSTER_QUEUE, found["metadata"]["name"])
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
        found["metadata"].pop(key, None)
    kube.create(found)
    with pytest.raises(PreflightError) as refused:
        engine.preflight(spec)
    assert message in refused.value.message
    assert refused.value.remedy
    (finding,) = [each for each in health.check(kube, spec.target) if each.check == "queue cloudrec"]
    if "memory" not in message:  # `doctor` knows no run, so it asks for the devices
        assert message.partition(", and the run")[0] in finding.found
        assert not finding.ok
        assert not finding.blocks
        assert finding.remedy


def test_a_queue_whose_nodes_are_gone_or_taken_for_others_is_refused(
    site: Site, kube: Kube, kueue: Callable[..., None]
) -> None:
    kueue()
    spec = queued(site, settings={"wait_for_nodes": False})
    engine = launcher("torchrun")
    flavor = one(kube, FLAVOR)
    site.server.control(nodes=[nodes(2, labels={"pool": "gpu"})])
    with pytest.raises(PreflightError, match=r"no node of .* has all labels of the Topology"):
        engine.preflight(spec)
    (finding,) = [each for each in health.check(kube, spec.target) if each.check == "queue cloudrec"]
    assert not finding.ok
    kube.delete(FLAVOR, flavor["metadata"]["name"])
    body = {key: flavor[key] for key in ("apiVersion", "kind")}
    place = {"name": flavor["metadata"]["name"]}
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    for own, message in (
        ({"nodeLabels": {"pool": "cpu"}}, "is for nodes with pool=cpu, and the pods need gpu"),
        ({"nodeLabels": {"rack": "9"}}, r"no node has the labels of .* \(rack=9\)"),
        ({"nodeLabels": {"pool": "gpu"}, "nodeTaints": [taint]}, "do not tolerate team"),
    ):
        kube.create({**body, "metadata": place, "spec": own})
        with pytest.raises(PreflightError, match=message):
            engine.preflight(spec)
        kube.delete(FLAVOR, place["name"])
    kube.create({**body, "metadata": place, "spec": {"nodeLabels": {"pool": "gpu"}}})
    engine.preflight(spec)


def test_without_a_queue_in_the_namespace_doctor_says_how_to_make_one(
    site: Site, kube: Kube, kueue: Callable[..., None]
) -> None:
    target = target_of(site.server)
    (finding,) = [each for each in health.check(kube, target) if each.check == "queues of Kueue"]
    assert (finding.ok, finding.blocks) == (False, False)
    assert finding.remedy == "cloudrec addons install kueue-queues"
    kueue()
    (finding,) = [each for each in health.check(kube, target) if each.check == "queue cloudrec"]
    assert (finding.ok, finding.found) == (True, "it can admit a run on 2 nodes")


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("ResourceFlavor", {"nodeLabels": {}, "topologyName": "x"}),
        ("ResourceFlavor", {"nodeLabels": {str(number): "x" for number in range(9)}}),
        ("ResourceFlavor", {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}),
        ("Topology", {"levels": []}),
        ("Topology", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "rack"}]}),
        ("ClusterQueue", {"stopPolicy": "Stop"}),
    ],
    ids=["topology", "labels", "toleration", "levels", "host", "stop"],
)
@pytest.mark.usefixtures("kueue")
def test_the_schemas_of_the_tests_refuse_what_kueue_refuses(
    site: Site, kube: Kube, kind: str, spec: dict[str, Any]
) -> None:
    if site.server.announcement is not None:
        pytest.skip("the stand-in evaluates no rules of a definition")
    with pytest.raises(InvalidError):
        kube.create({"apiVersion": API, "kind": kind, "metadata": {"name": "wrong"}, "spec": spec})
