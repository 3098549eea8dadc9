"""The guard's rounds: at expiry, runs are suspended and training nodes are removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app.guard import guard_of, hold_to_end
from cloudrec.errors import PreflightError, UsageError
from cloudrec.keeper import in_cluster
from cloudrec.keeper.guard import Guard, halting
from cloudrec.keeper.meter import Tariff
from cloudrec.keeper.note import NAME, Note
from cloudrec.kubernetes.client.client import Kube
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec.providers.base.protocol import CanScaleToZero, Halt
from cloudrec.spec.load import load
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
    """A guard with the test's clock and cloud."""

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

    def renew(self, note: Note) -> None:
        """Write what `up` writes for a new expiry; the guard's record is kept."""
        data = {"data": {"guard.json": note.to_json()}}
        self.client.patch("ConfigMap", NAME, data, namespace=NAMESPACE)

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


def test_at_expiry_runs_are_suspended_and_training_nodes_are_removed(client: Kube) -> None:
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
    assert not guard.round(minutes=61)  # the cloud was busy, so the call is retried
    assert suspended(client, "r")
    assert not suspended(client, "of-another")
    assert guard.round(minutes=2)
    assert guard.record()["pools"] == ["gpu"]
    job(client, "late")
    assert guard.round(minutes=2)  # no run trains after expiry
    assert suspended(client, "late")
    assert asked == ["conformance"] * 2


def halts(asked: list[str], nodes: list[int]) -> Callable[[ClusterSpec], Halt]:
    """A cloud with one pool; a list of one number holds its node count."""

    def halt(cluster: ClusterSpec) -> Halt:
        asked.append(cluster.expires or "")
        scaled = ("gpu",) if nodes[0] else ()
        nodes[0] = 0
        return Halt(pools=scaled)

    return halt


def ends(hour: int, **given: Any) -> Note:
    expires = f"2026-11-21T{hour}:00:00Z"
    return Note(cluster=ClusterSpec(name="conformance", provider="aws", expires=expires, **given))


def metered(site: Site, **given: Any) -> Note:
    """Two GPU nodes at $60 an hour and the rest at $1 an hour, on the stand-in's nodes."""
    site.cloud.control(nodes=[{"name": "gpu", "count": 2}, {"name": "cpu", "count": 1}])
    return Note(
        cluster=ClusterSpec(name="conformance", provider="aws", **given),
        began=datetime.now(UTC).isoformat(),
        pool_label="cloudrec-sandbox/pool",
        tariffs=(
            Tariff(pool="gpu", instance_type="p5.48xlarge", hourly_usd=60.0, gpus=8),
            Tariff(pool="cpu", instance_type="m6i.large", hourly_usd=0.0),
            Tariff(pool="", hourly_usd=1.0),
        ),
    )


def test_the_guard_ends_the_cluster_when_the_money_is_spent(site: Site, client: Kube) -> None:
    asked, nodes = list[str](), [2]
    guard = Watched(client, metered(site, budget_usd=242.0), halts(asked, nodes))
    guard.now = datetime.now(UTC)
    assert guard.round(minutes=118)
    assert asked == []
    assert "costs $121.00/h now" in guard.said[-2]
    assert guard.round(minutes=4)  # $242 are spent after two hours
    assert len(asked) == 1


def test_the_guard_meters_nothing_without_a_price(site: Site, client: Kube) -> None:
    note = metered(site, budget_usd=1.0)
    unpriced = replace(note, tariffs=(*note.tariffs[1:], Tariff(pool="gpu", hourly_usd=None, gpus=8)))
    asked = list[str]()
    guard = Watched(client, unpriced, halts(asked, [2]))
    assert guard.round(minutes=600)
    assert "the cost is not known: a pool has no price" in guard.said
    assert asked == []  # the end by the clock is what remains


def test_idle_gpu_nodes_are_scaled_to_zero_and_an_active_run_keeps_them(site: Site, client: Kube) -> None:
    asked, nodes = list[str](), [2]
    guard = Watched(client, metered(site, autostop="30m"), halts(asked, nodes))
    guard.now = datetime.now(UTC)
    assert guard.round(minutes=29)
    assert asked == []
    job(client, "r")
    assert guard.round(minutes=20)
    client.delete("Job", "r", namespace=NAMESPACE)
    assert guard.round(minutes=29)
    assert asked == []
    assert guard.round(minutes=2)
    assert len(asked) == 1
    assert "no run was active for 31 minutes: the GPU nodes are scaled to zero" in "\n".join(guard.said)


def test_a_renewed_expiry_is_enforced_like_the_first(client: Kube) -> None:
    asked, nodes = list[str](), [2]
    guard = Watched(client, ends(13), halts(asked, nodes))
    assert guard.round(minutes=61)
    guard.renew(ends(15))
    nodes[0] = 2
    assert guard.round(minutes=2)
    assert nodes == [2]  # the new expiry is in the future
    assert guard.round(minutes=120)
    assert (nodes, asked) == ([0], ["2026-11-21T13:00:00Z", "2026-11-21T15:00:00Z"])


def test_a_new_budget_with_the_same_expiry_starts_a_new_period(client: Kube) -> None:
    asked, nodes = list[str](), [2]
    guard = Watched(client, ends(13, budget_usd=5.0), halts(asked, nodes))
    assert guard.round(minutes=61)
    guard.renew(ends(13, budget_usd=9.0))
    nodes[0] = 2
    assert guard.round(seconds=1)
    assert nodes == [0]


def test_nodes_scaled_up_after_expiry_are_scaled_down_again(client: Kube) -> None:
    asked, nodes = list[str](), [2]
    guard = Watched(client, ends(13), halts(asked, nodes))
    assert guard.round(minutes=61)
    nodes[0] = 1
    for _ in range(3):
        assert guard.round(minutes=2)
    assert nodes == [0]


def test_a_recently_scaled_pool_is_not_scaled_in_the_next_round(client: Kube) -> None:
    asked = list[str]()

    def halt(_cluster: ClusterSpec) -> Halt:
        asked.append("")
        return Halt(pools=("gpu",))  # a cloud that does not report how many nodes a pool has

    guard = Watched(client, ends(13), halt)
    for _ in range(6):
        assert guard.round(minutes=61 if not asked else 2)
    assert len(asked) == 2


def test_a_record_of_a_clock_that_was_ahead_does_not_delay_a_scaling(client: Kube) -> None:
    asked, nodes = list[str](), [2]
    guard = Watched(client, ends(13), halts(asked, nodes))
    assert guard.round(hours=6)
    nodes[0] = 2
    assert guard.round(hours=-3)  # the next keeper's clock is right, and the end has passed
    assert nodes == [0]


def test_idleness_of_a_clock_that_was_ahead_begins_now(site: Site, client: Kube) -> None:
    asked, nodes = list[str](), [2]
    guard = Watched(client, metered(site, autostop="30m"), halts(asked, nodes))
    guard.now = datetime.now(UTC)
    job(client, "r")
    assert guard.round(hours=6)
    client.delete("Job", "r", namespace=NAMESPACE)
    assert guard.round(hours=-3)
    assert guard.round(minutes=29)
    assert asked == []
    assert guard.round(minutes=2)
    assert len(asked) == 1


def test_a_partly_failed_halt_is_retried_in_the_next_round(client: Kube) -> None:
    asked = list[str]()

    def halt(_cluster: ClusterSpec) -> Halt:
        asked.append("")
        if len(asked) == 1:
            raise PreflightError("no credentials yet")
        return Halt(pools=("gpu",))

    guard = Watched(client, ends(13), halt)
    with pytest.raises(PreflightError):
        guard.round(minutes=61)
    assert guard.round(minutes=2)
    assert (len(asked), guard.record()["halted"]) == (2, True)


def test_a_run_that_cannot_be_suspended_does_not_block_the_scale_down(site: Site, client: Kube) -> None:
    asked, nodes = list[str](), [2]
    guard = Watched(client, ends(13), halts(asked, nodes))
    job(client, "r")
    refused = {"kind": "error", "code": "Forbidden", "message": "a webhook says no", "status": 403}
    site.cloud.control(faults=[{**refused, "service": "batch", "action": "patch jobs", "times": 1}])
    assert not guard.round(minutes=61)
    assert (nodes, suspended(client, "r")) == ([0], False)
    assert any("a webhook says no" in line for line in guard.said)
    assert guard.round(minutes=2)
    assert suspended(client, "r")


def test_an_unreadable_record_is_ignored(client: Kube) -> None:
    asked, nodes = list[str](), [2]
    guard = Watched(client, ends(13), halts(asked, nodes))
    for text in ('{"halted": true}', "no JSON", '{"end": 1, "pools": [], "left": [], "at": "noon"}'):
        client.patch("ConfigMap", NAME, {"data": {"state.json": text}}, namespace=NAMESPACE)
        nodes[0] = 2
        assert guard.round(hours=2)
        assert nodes == [0]


def test_a_spent_budget_halts_the_cluster(client: Kube) -> None:
    cluster = ClusterSpec(name="conformance", provider="aws", budget_usd=20.0, expires="2026-11-23T00:00:00Z")
    note = Note(cluster=cluster, hourly_usd=10.0, began=NOON.isoformat())
    assert Note.of(note.to_json()) == note
    assert note.end() == NOON + timedelta(hours=2)
    guard = Watched(client, note, lambda _cluster: Halt(pools=("gpu",)))
    assert guard.round(minutes=119)
    assert guard.record() == {}
    assert guard.round(minutes=2)
    assert guard.record()["halted"]


def test_an_adopted_cluster_suspends_runs_and_keeps_its_nodes(site: Site, tmp_path: Path) -> None:
    accelerator = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    gpu = {"name": "gpu", "count": 2, "labels": accelerator, "hardware": {"gpus": 1}}
    site.cloud.control(nodes=[{"name": "cpu", "count": 1}, gpu], processes=False)
    site.up()
    provider = site.application.provider("kubernetes")
    assert isinstance(provider, CanScaleToZero)
    over = provider.guard(site.cluster).cluster
    over = over.model_copy(update={"expires": "2026-11-21T11:00:00Z"})
    with kube(site) as client:
        guard = Watched(client, Note(cluster=over), halting(tmp_path, site.cloud.env))
        job(client, "r")
        before = [(node["spec"], node["metadata"].get("labels")) for node in client.list("Node")]
        assert guard.round()
        assert suspended(client, "r")
        assert [(node["spec"], node["metadata"].get("labels")) for node in client.list("Node")] == before
        assert any("not cloudrec's to scale or to cordon" in line for line in guard.said)
        client.delete("ConfigMap", NAME, namespace=NAMESPACE)
    site.down()


def _up_before_the_end(site: Site) -> None:
    """Create the cluster before its expiry."""
    before = replace(site.application, now=lambda: datetime(2026, 11, 21, 3, tzinfo=UTC))
    app.up(before, site.cluster, decide=lambda _plan: True)


def test_runs_are_refused_after_expiry_until_it_is_renewed(site: Site, tmp_path: Path) -> None:
    site.cloud.control(processes=False)
    site.cluster = site.cluster.model_copy(update={"expires": "2026-11-21T11:00:00Z"})
    _up_before_the_end(site)
    elsewhere = Site(site.cloud, tmp_path / "elsewhere")  # its journal still has the past expiry
    elsewhere.cluster = site.cluster
    _up_before_the_end(elsewhere)
    flags: dict[tuple[str, ...], tuple[str, Any]] = {
        ("cluster", "provider"): ("PROVIDER", "kubernetes"),
        ("train", "image"): ("--image", "registry.example/cloudrec@sha256:" + "0" * 64),
        ("trainer", "dataset_path"): ("--dataset", "s3://bucket/data"),
    }
    loaded = load(None, environment={}, flags=flags, folder=tmp_path)
    for home in (site, elsewhere):
        with pytest.raises(PreflightError, match="ended at 2026-11-21T11:00:00Z") as caught:
            app.train(home.application, loaded, (), decide=lambda _launch: False)
        assert "--ttl" in (caught.value.remedy or "")
    site.cluster = site.cluster.model_copy(update={"expires": None, "ttl": "8h"})
    site.up()
    for home in (site, elsewhere):
        assert app.train(home.application, loaded, (), decide=lambda _launch: False) is None
    site.down()


def test_the_guard_is_deleted_when_expiry_and_budget_are_removed(site: Site) -> None:
    site.cloud.control(processes=False)
    site.up()
    before = site.cloud.state()
    ending = site.cluster.model_copy(update={"expires": "2099-11-21T11:00:00Z"})
    with kube(site) as client:
        access = site.application.provider("kubernetes").access(site.cluster)
        assert isinstance(access, KubernetesAccess)
        target = access.target
        image = "registry.example/cloudrec@sha256:" + "0" * 64
        hold_to_end(site.application, ending, client, target, image=image)
        assert len(site.cloud.state()) > len(before)
        hold_to_end(site.application, site.cluster, client, target, image=image)
        assert site.cloud.state() == before
    site.down()


def test_the_service_account_of_the_guard_has_exactly_the_rights_it_needs(site: Site, tmp_path: Path) -> None:
    site.cloud.control(processes=False)
    site.up()
    site.cluster = site.cluster.model_copy(update={"expires": "2026-11-21T11:00:00Z"})  # since expired
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


def _mounted(site: Site, admin: Kube, folder: Path) -> in_cluster.PodAccess:
    """The files that the kubelet mounts into a pod of the guard's service account."""
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
    return in_cluster.place(environment, str(folder), mount=mount)


def test_up_after_expiry_needs_a_new_expiry_and_updates_the_guard_first(
    site: Site,
) -> None:
    site.cloud.control(processes=False)
    site.cluster = site.cluster.model_copy(update={"expires": "2026-11-21T11:00:00Z"})
    _up_before_the_end(site)
    image = "registry.example/cloudrec@sha256:" + "0" * 64
    access = site.application.provider("kubernetes").access(site.cluster)
    assert isinstance(access, KubernetesAccess)
    target = access.target
    with kube(site) as client:
        hold_to_end(site.application, site.cluster, client, target, image=image)
        site.cluster = site.cluster.model_copy(update={"expires": None})
        with pytest.raises(UsageError, match="ended at 2026-11-21T11:00:00Z"):
            site.up()
        assert _note(client).end() == datetime(2026, 11, 21, 11, tzinfo=UTC)
        before = len(site.cloud.calls())
        site.cluster = site.cluster.model_copy(update={"ttl": "8h"})
        site.up()  # no image was pushed from this home, so the guard keeps its image
        assert (_note(client).end() or NOON) > datetime.now(UTC) + timedelta(hours=7)
        changes = [action for _, action in site.cloud.changing(site.cloud.calls(before))]
        renewed = changes.index("patch cronjobs") + 1  # the last of the guard's objects
        assert changes[renewed] == "patch configmaps"  # the engine's record is written after the guard's
        cron = client.get("CronJob", NAME, namespace=NAMESPACE)
        assert cron is not None
        assert image in json.dumps(cron)
    site.down()


def _note(client: Kube) -> Note:
    found = client.get("ConfigMap", NAME, namespace=NAMESPACE)
    assert found is not None
    return Note.of(found["data"]["guard.json"])


def test_the_guard_outside_a_pod_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="no pod"):
        in_cluster.place({}, str(tmp_path), mount=tmp_path)


def test_the_guard_pod_completes_a_round_with_the_settings_of_its_manifest(site: Site) -> None:
    site.up()
    site.cluster = site.cluster.model_copy(update={"expires": "2026-11-21T11:00:00Z"})  # since expired
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
