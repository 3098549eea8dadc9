"""Launchers against the stand-in: applied objects, states, results and refusals before submission."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudrec.errors import PreflightError, SpecError, UsageError
from cloudrec.kubernetes.client.client import Kube
from cloudrec.launchers import launcher
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.kubernetes import submit
from cloudrec.launchers.kubernetes.context import disconnect
from tests.contract.kubernetes.support import Server
from tests.contract.kubernetes.support_runs import IMAGE, Site, await_status, await_true, names

ALL = ("torchrun", "pytorchjob", "trainjob", "jobset", "rayjob")
KINDS = {name: launcher(name).engine.kind for name in ALL}  # type: ignore[attr-defined]  # those of Kubernetes
CPU = [{"name": "cpu", "count": 2, "capacity": {"cpu": "4", "memory": "16Gi"}}]
GPUS = {"resources": {"nvidia.com/gpu": "8"}}


@pytest.fixture
def site(server: Server, tmp_path: Path) -> Iterator[Site]:
    server.control(nodes=CPU, processes=False, bookkeeping={}, operators=[], images={IMAGE: "present"})
    yield Site(server, tmp_path)
    disconnect()


@pytest.mark.parametrize("how", ALL)
def test_a_run_is_submitted_as_planned_and_watched_to_its_end(site: Site, kube: Kube, how: str) -> None:
    site.server.control(operators=[how] if how in ALL[1:] else [])
    spec = site.spec(f"whole-{how}", how)
    engine, run = site.create(spec)
    await_true(lambda: kube.kinds.has(KINDS[how]))
    engine.preflight(spec)
    plan = engine.dry_run(run, spec)
    handle = engine.submit(run)
    assert (handle.id, handle.launch) == (f"{site.server.namespace}/{spec.name}", 1)
    if how != "rayjob":  # the stand-in's operator starts a real Ray cluster, which needs real processes
        status = await_status(engine, run, lambda status: status.state is RunState.RUNNING)
        assert len(status.workers) == 2
    for planned in plan.objects:
        live = kube.live(planned)
        assert live is not None
        owned = planned["kind"] in (
            "ConfigMap",
            "NetworkPolicy",
            "Service",
            "PodDisruptionBudget",
            "TrainingRuntime",
        )
        assert bool(live["metadata"].get("ownerReferences")) is owned


def test_a_trainjob_is_retried_while_the_webhook_does_not_see_its_runtime(site: Site, kube: Kube) -> None:
    site.server.control(operators=["trainjob"], webhook_lag_s=2)
    await_true(lambda: kube.kinds.has(KINDS["trainjob"]))
    try:
        engine, run = site.launch(site.spec("late-runtime", "trainjob"))
        assert await_status(engine, run, lambda status: status.state is RunState.RUNNING).workers
    finally:
        site.server.control(webhook_lag_s=0)


def test_a_succeeded_run_is_not_polled_again(site: Site, kube: Kube) -> None:
    site.server.control(bookkeeping={"run_s": 0.2, "exit_code": 0})
    engine, run = site.launch(site.spec("good"))
    assert await_status(engine, run, lambda status: status.state.is_final).state is RunState.SUCCEEDED
    kube.delete("Job", "good", namespace=site.server.namespace)
    assert engine.state(run).state is RunState.SUCCEEDED
    with pytest.raises(UsageError, match="has finished"):
        engine.submit(run)


def test_bad_data_fails_the_run_at_once_with_the_reason(site: Site) -> None:
    site.server.control(bookkeeping={"run_s": 0.2, "exit_code": 65})
    engine, run = site.launch(site.spec("bad"))
    status = await_status(engine, run, lambda status: status.state.is_final)
    assert status.state is RunState.FAILED
    assert "refuses its data" in (status.cause or "")


@pytest.mark.parametrize("how", ALL[:4])
def test_a_stopped_run_continues_as_its_next_launch(site: Site, kube: Kube, how: str) -> None:
    site.server.control(operators=[how] if how in ALL[1:] else [])
    await_true(lambda: kube.kinds.has(KINDS[how]))
    name = f"stops-{how}"
    engine, run = site.launch(site.spec(name, how))
    await_status(engine, run, lambda status: status.state is RunState.RUNNING)
    stopped = engine.stop(run)
    assert (stopped.state, stopped.cause) == (
        RunState.INTERRUPTED,
        "stopped on request; no checkpoint is committed",
    )
    with pytest.raises(UsageError, match="is not running: it is INTERRUPTED"):
        engine.stop(run)
    assert names(kube, "Pod", site.server.namespace, name) == []
    assert engine.submit(run).launch == 2
    await_status(engine, run, lambda status: status.state is RunState.RUNNING)
    job = kube.get(KINDS[how], name, namespace=site.server.namespace)
    assert job is not None
    assert submit.launch_of(job) == 2
    with pytest.raises(UsageError, match="is RUNNING"):
        engine.submit(run)


def test_an_interrupted_submission_is_completed_by_the_next(site: Site, kube: Kube) -> None:
    spec = site.spec("halfway")
    engine, run = site.create(spec)
    run.ledger.append("submitted", launch=1)
    for manifest in engine.dry_run(run, spec).objects[:-1]:
        kube.apply(manifest)
    assert engine.state(run).state is RunState.PENDING
    assert engine.submit(run).launch == 1
    await_status(engine, run, lambda status: status.state is RunState.RUNNING)


def test_a_run_whose_object_was_deleted_has_failed(site: Site, kube: Kube) -> None:
    engine, run = site.launch(site.spec("deleted"))
    kube.delete("Job", "deleted", namespace=site.server.namespace)
    status = await_status(engine, run, lambda status: status.state.is_final)
    assert (status.state, status.cause) == (
        RunState.FAILED,
        "its Job is no longer in the cluster: another client deleted it",
    )


def test_a_lost_node_is_a_preemption_and_the_run_restarts(site: Site) -> None:
    site.server.control(speed=40)  # losing a machine takes a minute of the cluster's time
    engine, run = site.launch(site.spec("taken", settings={"cpus": 3}))
    status = await_status(engine, run, lambda status: status.state is RunState.RUNNING)
    site.server.control(evict={"node": status.workers[1].node, "how": "vanish"})
    status = await_status(engine, run, lambda status: status.preemptions == 1)
    status = await_status(engine, run, lambda status: status.state is RunState.RUNNING)
    (taken,) = [event for event in run.ledger.read() if event.event == "preempted"]
    site.server.control(speed=1)
    assert "its node cpu-" in taken.details["cause"] or "it was taken from cpu-" in taken.details["cause"]


def test_an_unschedulable_run_is_pending_and_names_the_missing_resources(site: Site) -> None:
    engine, run = site.launch(site.spec("huge", settings={"cpus": 64}))
    status = await_status(engine, run, lambda status: "lack cpu" in (status.cause or ""))
    assert status.state is RunState.PENDING
    assert "the most that a node offers is 4" in (status.cause or "")


@pytest.mark.parametrize(("how", "told"), [("missing", "there is no image"), ("private", "may not pull")])
def test_an_image_that_cannot_be_pulled_is_reported_before_submission(
    site: Site, kube: Kube, how: str, told: str
) -> None:
    site.server.control(images={IMAGE: how})
    engine, run = site.create(site.spec(f"image-{how}", settings={"probe": True}))
    with pytest.raises(PreflightError, match=told):
        engine.submit(run)
    assert engine.state(run).state is RunState.FAILED
    for kind in ("Job", "ConfigMap", "NetworkPolicy"):
        assert names(kube, kind, site.server.namespace, run.name) == []


def test_data_that_pods_cannot_read_is_reported_before_submission(site: Site, kube: Kube) -> None:
    site.server.control(
        bookkeeping={"run_s": 0.1, "exit_code": 65, "log": ["error: s3://b/d: no dataset.json"]}
    )
    engine, run = site.create(site.spec("no-data", settings={"probe": True}))
    with pytest.raises(PreflightError, match="seen from inside the cluster"):
        engine.submit(run)
    assert names(kube, "Job", site.server.namespace, run.name) == []


@pytest.mark.parametrize("how", ["spot", "removed"])
def test_a_check_of_the_data_whose_node_is_taken_is_repeated_on_another(
    site: Site, kube: Kube, how: str
) -> None:
    if how == "removed":
        site.server.control(advance_s=0)  # skips where time cannot be advanced
    site.server.control(bookkeeping={"run_s": 600, "stop_code": 143})
    engine, run = site.create(site.spec(f"checked-{how}", settings={"probe": True}))
    probe = {"batch.kubernetes.io/job-name": f"{run.name}-probe"}

    def pods() -> list[tuple[str, str]]:
        found = kube.list("Pod", namespace=site.server.namespace, labels=probe)
        return [(each["spec"].get("nodeName", ""), each["status"]["phase"]) for each in found]

    with ThreadPoolExecutor(1) as thread:
        submitted = thread.submit(engine.submit, run)
        await_true(lambda: [phase for _, phase in pods()] == ["Running"])
        ((node, _),) = pods()
        if how == "spot":
            site.server.control(evict={"node": node, "how": how})
        else:
            names_left = {"cpu-0", "cpu-1"} - {node}
            site.server.control(nodes=[{**CPU[0], "name": name, "count": None} for name in names_left])
            site.server.control(advance_s=41)  # pod garbage collection
        site.server.control(bookkeeping={"run_s": 0.1})  # of the pods that start from now on
        assert submitted.result(timeout=60).launch == 1


def test_missing_gpus_are_reported_with_the_available_number(site: Site) -> None:
    spec = site.spec("gpus", target=GPUS)
    with pytest.raises(PreflightError, match=r"has 0: cpu-0 offers 0 nvidia\.com/gpu") as caught:
        launcher("torchrun").preflight(spec)
    assert "device plugin" in (caught.value.remedy or "")
    pool = {"name": "gpu", "count": 1, "capacity": {"nvidia.com/gpu": "8"}}
    site.server.control(nodes=[*CPU, pool])
    with pytest.raises(PreflightError, match=r"needs 2 nodes with 8 nvidia\.com/gpu each, .* has 1"):
        launcher("torchrun").preflight(spec)
    site.server.control(nodes=[{**pool, "count": 2}])
    launcher("torchrun").preflight(spec)


def test_gpus_in_use_by_another_run_are_reported(site: Site) -> None:
    site.server.control(nodes=[{"name": "gpu", "count": 2, "capacity": {"nvidia.com/gpu": "8"}}])
    engine, run = site.launch(site.spec("holds", target=GPUS))
    await_status(engine, run, lambda status: status.state is RunState.RUNNING)
    with pytest.raises(PreflightError, match="only 0 of 2 have them: other pods use the rest"):
        engine.preflight(site.spec("wants", target=GPUS))


@pytest.mark.parametrize("how", ALL[1:])
def test_a_missing_operator_is_reported_with_the_command_that_installs_it(site: Site, how: str) -> None:
    with pytest.raises(PreflightError, match="needs an operator") as caught:
        launcher(how).preflight(site.spec("none", how))
    assert "cloudrec addons install" in (caught.value.remedy or "")


def test_a_name_in_use_by_an_object_of_others_is_refused(site: Site) -> None:
    site.launch(site.spec("twice"))
    elsewhere = Site(site.server, site.folder / "elsewhere")
    engine, run = elsewhere.create(site.spec("twice"))
    with pytest.raises(UsageError, match="has a Job named 'twice'"):
        engine.submit(run)


def test_invalid_names_settings_and_flags_are_refused_before_any_request(site: Site) -> None:
    engine = launcher("torchrun")
    with pytest.raises(SpecError, match=r"train\.settings has 'gpu'"):
        engine.preflight(site.spec("a", settings={"gpu": 1}))
    with pytest.raises(SpecError, match="--output_dir is set by cloudrec"):
        engine.preflight(site.spec("a", trainer_flags=("--output_dir", "/x")))
    with pytest.raises(SpecError, match="no image"):
        engine.preflight(site.spec("a", image=""))


def test_a_launch_on_a_recreated_cluster_is_refused(site: Site) -> None:
    spec = site.spec("stranger", target={"identity": "1" * 36})
    with pytest.raises(PreflightError, match="another cluster than before"):
        launcher("torchrun").preflight(spec)


def test_log_lines_of_one_rank_are_followed_to_the_end(site: Site) -> None:
    lines = [f"[rank {rank}] {text}" for rank in (0, 1) for text in ("=== launch 1", f"hello {rank}")]
    site.server.control(bookkeeping={"run_s": 1.0, "exit_code": 0, "log": lines})
    engine, run = site.launch(site.spec("lines", nodes=1))
    assert list(engine.logs(run, rank=1, follow=True)) == ["=== launch 1", "hello 1"]
    assert list(engine.logs(run, rank=0, follow=False, tail=1)) == ["hello 0"]


def test_a_queue_that_cannot_admit_the_run_is_refused_before_the_launch(site: Site, kube: Kube) -> None:
    spec = site.spec("queued", settings={"queue": "gpus"})
    engine, _ = site.create(spec)
    with pytest.raises(PreflightError, match="has no Kueue") as refused:
        engine.preflight(spec)
    assert "addons install kueue" in str(refused.value.remedy)
    site.server.control(crds=["kueue"])
    await_true(lambda: kube.kinds.has("kueue.x-k8s.io/v1beta2/LocalQueue"))
    with pytest.raises(PreflightError, match="no LocalQueue 'gpus'; it has none"):
        engine.preflight(spec)
    place = {"name": "gpus", "namespace": site.server.namespace}
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": place}
    kube.create({**body, "spec": {"clusterQueue": "all"}})
    with pytest.raises(PreflightError, match="is for the ClusterQueue 'all', which does not exist"):
        engine.preflight(spec)
    stopped = {"type": "Active", "status": "False", "reason": "ClusterQueueDoesNotExist", "message": "no all"}
    kube.patch(
        "kueue.x-k8s.io/v1beta2/LocalQueue",
        "gpus",
        {"status": {"conditions": [stopped]}},
        namespace=site.server.namespace,
        subresource="status",
    )
    with pytest.raises(PreflightError, match="admits no run: no all"):
        engine.preflight(spec)
