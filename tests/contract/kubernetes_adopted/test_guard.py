"""The guard's rounds: nothing before the end; then runs are suspended, and what trains goes, once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudrec.app.guarding import guard_of
from cloudrec.errors import PreflightError
from cloudrec.kube.client import Kube
from cloudrec.pod import inside
from cloudrec.pod.guard import NAME, Guard, Note, halting
from cloudrec.provider import Halt
from cloudrec.spec.models import ClusterSpec
from tests.conformance.support_clouds import Site, until
from tests.contract.kubernetes_adopted.test_adopted import kube, obj, pods

NAMESPACE = "cloudrec-conformance"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
RUN_OF_GUARD = {"app.kubernetes.io/managed-by": "cloudrec", "cloudrec/cluster": "conformance"}
RUN = {"app.kubernetes.io/managed-by": "cloudrec", "cloudrec/cluster": "conformance", "cloudrec/run": "r"}


@pytest.fixture
def client(site: Site) -> Iterator[Kube]:
    site.cloud.control(processes=False)
    with kube(site) as client:
        client.create(obj("Namespace", NAMESPACE))
        yield client


class Watched:
    """A guard whose clock and cloud are the test's."""

    def __init__(self, client: Kube, note: Note, halt: Callable[[ClusterSpec], Halt]) -> None:
        self.now, self.said = NOON, list[str]()
        data = {"guard.json": note.to_json()}
        client.create(obj("ConfigMap", NAME, namespace=NAMESPACE, data=data))
        self._guard = Guard(
            kube=client, namespace=NAMESPACE, halt=halt, now=lambda: self.now, report=self.said.append
        )
        self.client = client

    def round(self, **later: float) -> bool:
        self.now += timedelta(**later)
        return self._guard.round()

    def record(self) -> dict[str, Any]:
        return _record(self.client)


def _record(client: Kube) -> dict[str, Any]:
    found = client.get("ConfigMap", NAME, namespace=NAMESPACE)
    assert found is not None
    told: dict[str, Any] = json.loads(found["data"].get("state.json", "{}"))
    return told


def job(client: Kube, name: str, **labels: str) -> None:
    spec: dict[str, Any] = {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "template": pods(name),
    }
    of_pods = {**RUN, "cloudrec/role": "trainer", "cloudrec/run": name, **labels}
    spec["template"]["metadata"]["labels"] = of_pods
    spec["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    client.create(
        obj("Job", name, labels={**RUN, "cloudrec/run": name, **labels}, namespace=NAMESPACE, spec=spec)
    )


def suspended(client: Kube, name: str) -> bool:
    found = client.get("Job", name, namespace=NAMESPACE)
    assert found is not None
    return bool(found["spec"].get("suspend"))


def test_when_the_end_has_come_runs_are_suspended_and_what_trains_goes_once(client: Kube) -> None:
    asked = list[str]()

    def halt(cluster: ClusterSpec) -> Halt:
        asked.append(cluster.title)
        busy = ("pool gpu: at work",) if len(asked) == 1 else ()
        return Halt(pools=() if busy else ("gpu",), left=busy)

    cluster = ClusterSpec(name="conformance", provider="aws", expires="2026-11-21T13:00:00Z")
    guard = Watched(client, Note(cluster=cluster), halt)
    job(client, "r")
    job(client, "of-another", **{"app.kubernetes.io/managed-by": "somebody"})
    assert guard.round()
    assert (asked, suspended(client, "r")) == ([], False)
    assert not guard.round(minutes=61)  # the cloud was busy: it is asked again
    assert suspended(client, "r")
    assert not suspended(client, "of-another")
    assert guard.round(minutes=2)
    assert guard.record()["pools"] == ["gpu"]
    job(client, "late")
    assert guard.round(minutes=2)  # nobody trains after the end
    assert suspended(client, "late")
    assert asked == ["conformance"] * 2


def test_a_spent_budget_is_an_end(client: Kube) -> None:
    cluster = ClusterSpec(name="conformance", provider="aws", budget_usd=20.0, expires="2026-11-23T00:00:00Z")
    note = Note(cluster=cluster, hourly_usd=10.0, began=NOON.isoformat())
    assert Note.of(note.to_json()) == note
    assert note.end() == NOON + timedelta(hours=2)
    guard = Watched(client, note, lambda _cluster: Halt(pools=("gpu",)))
    assert guard.round(minutes=119)
    assert guard.record() == {}
    assert guard.round(minutes=2)
    assert guard.record()["halted"]


def test_on_an_adopted_cluster_gpu_nodes_are_cordoned_and_nothing_is_scaled(
    site: Site, tmp_path: Path
) -> None:
    accelerator = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    gpu = {"name": "gpu", "count": 2, "labels": accelerator, "hardware": {"gpus": 1}}
    site.cloud.control(nodes=[{"name": "cpu", "count": 1}, gpu], processes=False)
    site.up()
    told = site.application.provider("kubernetes").guard(site.cluster)
    assert told.cordons
    over = told.cluster.model_copy(update={"expires": "2026-11-21T11:00:00Z"})
    with kube(site) as client:
        guard = Watched(client, Note(cluster=over), halting(tmp_path, site.cloud.env))
        assert guard.round()
        closed = [
            node["metadata"]["name"] for node in client.list("Node") if node["spec"].get("unschedulable")
        ]
        assert closed == ["gpu-0", "gpu-1"]
        assert any("not ours to scale" in line for line in guard.said)
        client.delete("ConfigMap", NAME, namespace=NAMESPACE)
    site.down()


def test_the_guards_own_account_may_do_all_of_this_and_no_more(site: Site, tmp_path: Path) -> None:
    site.cloud.control(processes=False)
    site.cluster = site.cluster.model_copy(update={"expires": "2026-11-21T11:00:00Z"})
    site.up()
    image = "registry.example/cloudrec@sha256:" + "0" * 64
    with kube(site) as admin:
        for each in guard_of(site.application.provider("kubernetes"), site.cluster, image=image):
            admin.apply(each)
        job(admin, "r")
        mounted = _mounted(site, admin, tmp_path)
        with mounted.connect() as own:
            guard = Guard(
                kube=own,
                namespace=mounted.namespace,
                halt=halting(tmp_path, {"KUBECONFIG": str(mounted.kubeconfig)}),
                now=lambda: NOON,
            )
            assert guard.round()
            assert not own.may("delete", "Job", namespace=NAMESPACE)
            assert not own.may("get", "Secret", namespace=NAMESPACE)
        assert suspended(admin, "r")
    site.down()
    assert site.cloud.state() == []


def _mounted(site: Site, admin: Kube, folder: Path) -> inside.Place:
    """What the kubelet mounts into a pod of the guard's account."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAME}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = admin.raw("POST", path, body=body)["status"]["token"]
    authority = Path(site.cloud._announcement["certificate_authority"]).read_text()
    mount = folder / "mount"
    mount.mkdir()
    for name, text in {"token": token, "ca.crt": authority, "namespace": NAMESPACE}.items():
        (mount / name).write_text(text)
    port = site.cloud._announcement["endpoints"]["kubernetes"].rpartition(":")[2]
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    return inside.place(environment, str(folder), mount=mount)


def test_outside_of_a_pod_it_says_where_it_belongs(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="no pod"):
        inside.place({}, str(tmp_path), mount=tmp_path)


def test_its_pod_does_a_round_by_what_its_manifest_gives_it(site: Site) -> None:
    site.cluster = site.cluster.model_copy(update={"expires": "2026-11-21T11:00:00Z"})
    site.up()
    image = "registry.example/cloudrec@sha256:" + "0" * 64
    with kube(site) as client:
        *others, cron = guard_of(site.application.provider("kubernetes"), site.cluster, image=image)
        for each in others:
            client.apply(each)
        spec = cron["spec"]["jobTemplate"]["spec"]
        client.create(obj("Job", "round", labels=RUN_OF_GUARD, namespace=NAMESPACE, spec=spec))
        until(lambda: _ended(client), "its pod ends")
        assert _record(client)["halted"]
    site.down()
    assert site.cloud.state() == []


def _ended(client: Kube) -> bool:
    job = client.get("Job", "round", namespace=NAMESPACE)
    assert job is not None
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each["type"] in ("Complete", "Failed") for each in conditions)
