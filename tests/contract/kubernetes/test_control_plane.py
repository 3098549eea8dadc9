"""A whole life on a real control plane: commands as a user types them, and nothing of others is changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.manifests import Guarding, guard_objects, probe_objects, run_objects
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.kubernetes.context import disconnect
from tests.contract.kubernetes.support import NODES, Server, joined_server
from tests.contract.kubernetes.support_runs import Site, await_status, await_true
from tests.contract.kubernetes.support_store import bucket
from tests.trainer.support_dataset import write_dataset
from tests.unit.kubernetes_manifests.support_matrix import FAMILIES, IMAGE, profile, workload

pytestmark = pytest.mark.timeout(900)
_TRAINER = (
    "--batch_size=64", "--embedding_dim=16", "--num_embeddings=50", "--dense_arch_layer_sizes=32,16",
    "--over_arch_layer_sizes=32,1", "--checkpoint_interval=10",
)  # fmt: skip
_FINAL_S = 240.0
PROGRAM = "registry.example/cloudrec-trainer@sha256:" + "5c" * 32  # the nodes run any image of such a name
FAKE = Path(__file__).parents[2] / "e2e" / "fake_trainer.py"
OPERATORS = {
    "pytorchjob": "kubeflow.org/v1/PyTorchJob",
    "trainjob": "trainer.kubeflow.org/v1alpha1/TrainJob",
    "jobset": "jobset.x-k8s.io/v1alpha2/JobSet",
    "rayjob": "ray.io/v1/RayJob",
}
# What a cluster writes by itself while a test runs.
_OWN = ("events", "leases", "endpoints", "endpointslices", "componentstatuses", "nodes", "ipaddresses")


@dataclass(frozen=True, kw_only=True)
class Laptop:
    """A user's machine with a kubeconfig."""

    folder: Path
    environment: dict[str, str]

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command; its output."""
        command = [sys.executable, "-P", "-m", "cloudrec", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, (words, done.stdout[-2000:], done.stderr[-4000:])
        return done.stdout

    def state(self, run: str) -> dict[str, Any]:
        """What `status` says about a run."""
        (found,) = json.loads(self.run("status", run, "-o", "json"))["runs"]
        state: dict[str, Any] = found
        return state

    def wait(self, run: str, state: str) -> None:
        """Wait for a run's state."""
        deadline = time.monotonic() + _FINAL_S
        while (found := self.state(run))["state"] != state:
            assert time.monotonic() < deadline, found


@pytest.fixture(scope="module")
def server(real_server: Path) -> Iterator[Server]:
    with joined_server(real_server) as server:
        yield server


@pytest.fixture
def laptop(server: Server, tmp_path: Path) -> Iterator[Laptop]:
    assert server.nodes is not None
    with bucket(tmp_path) as (files, variables):
        write_dataset(tmp_path / "data", train_rows=2000, test_rows=200)
        files.put(str(tmp_path / "data"), "bucket/data", recursive=True)
        server.nodes.order(environment=variables, nodes=NODES, processes=True)
        given = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "KUBECONFIG": server.kubeconfig}
        shown = {name: variables[name] for name in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION")}
        home = {"CLOUDREC_HOME": str(tmp_path / "home")}
        yield Laptop(folder=tmp_path, environment={**os.environ, **given, **shown, **home})


def listing(kube: Kube) -> dict[str, Any]:
    """Every object of every kind that can be listed, without what the cluster itself writes."""
    found = {}
    groups = kube.raw("GET", "/apis")["groups"]
    for version in ["/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups)]:
        for kind in kube.raw("GET", version)["resources"]:
            if "list" not in kind["verbs"] or kind["name"] in _OWN:
                continue
            for item in kube.raw("GET", f"{version}/{kind['name']}").get("items") or ():
                metadata = item["metadata"]
                # Namespaces of other test modules may take minutes to go.
                if metadata.get("namespace", metadata["name"]).startswith("cloudrec-test-"):
                    continue
                name = f"{version}/{kind['name']}/{metadata.get('namespace', '')}/{metadata['name']}"
                found[name] = (metadata["uid"], item.get("spec"), metadata.get("labels"))
    return found


@contextmanager
def others(kube: Kube) -> Iterator[None]:
    """What other people have in a shared cluster: a namespace with rules and accounts, a cordon."""
    space: dict[str, Any] = {"namespace": "team"}
    labels = {"team": "ml", "pod-security.kubernetes.io/enforce": "baseline"}
    made: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": labels}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**space, "name": "ml"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**space, "name": "notes"}, "data": {"a": "1"}},
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {**space, "name": "ours"},
         "spec": {"hard": {"pods": "20", "requests.cpu": "40"}}},
    ]  # fmt: skip
    for each in made:
        kube.create(each)
    kube.patch("Node", f"{NODES[0]['name']}-theirs", {"spec": {"unschedulable": True}})
    try:
        yield
    finally:  # so that a failed test does not fail the next one
        kube.delete("Namespace", "team")
        await_true(lambda: kube.get("Namespace", "team") is None)


def nodes_of(kube: Kube) -> dict[str, Any]:
    """Specs and labels of all nodes."""
    return {
        each["metadata"]["name"]: (each["spec"], each["metadata"]["labels"]) for each in kube.list("Node")
    }


@pytest.mark.parametrize(
    "launcher",
    ["torchrun", "pytorchjob", "trainjob", "jobset", pytest.param("rayjob", marks=pytest.mark.soak)],
)
def test_a_life_of_a_cluster_trains_stops_resumes_and_leaves_what_others_have(
    server: Server, laptop: Laptop, launcher: str
) -> None:
    assert server.nodes is not None
    shared: list[dict[str, Any]] = [*NODES, {"name": f"{NODES[0]['name']}-theirs"}]
    server.nodes.order(nodes=shared)
    server.control(operators=[launcher] if launcher in OPERATORS else [])
    with server.connect() as kube, others(kube):
        before, nodes = _settled(kube), nodes_of(kube)
        setting = "cluster.settings."
        laptop.run(
            "up", "kubernetes", "--yes", "--set", f"{setting}storage=s3://bucket/runs", "--set",
            f"{setting}context=real",
        )  # fmt: skip
        usual = ("--launcher", launcher, "--nodes", "2", "--nproc-per-node", "1", "--dataset",
                 "s3://bucket/data", "--yes", "--detach", "--image", PROGRAM,
                 "--set", "train.settings.cpus=1")  # fmt: skip
        laptop.run("train", "--name", "whole", *usual, "--", *_TRAINER, "--num_epochs=1")
        assert "samples" in laptop.run("logs", "whole", "--follow")
        laptop.wait("whole", "SUCCEEDED")
        laptop.run("train", "--name", "stopped", *usual, "--", *_TRAINER, "--num_epochs=500")
        laptop.wait("stopped", "RUNNING")
        laptop.run("stop", "stopped")
        assert laptop.state("stopped")["state"] == "INTERRUPTED"
        laptop.run("train", "--resume", "stopped", "--yes", "--detach")
        laptop.wait("stopped", "RUNNING")
        laptop.run("stop", "stopped")
        if launcher == "torchrun":
            _add_on(server, laptop, shared)
        laptop.run("down", "kubernetes", "--cluster", "kubernetes", "--yes")  # of other tests, runs are left
        server.nodes.order(nodes=shared)
        assert _settled(kube) == before
        assert nodes_of(kube) == nodes


def test_a_model_of_the_users_own_trains_in_pods_as_on_this_machine(server: Server, laptop: Laptop) -> None:
    assert server.nodes is not None
    page = (Path(__file__).parents[3] / "docs" / "features.md").read_text(encoding="utf-8")
    for name, text in re.findall(r"`([\w.]+)`:\n\n```\w+\n(.*?)```", page, re.DOTALL):
        (laptop.folder / name).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "make_clicks.py"], cwd=laptop.folder, check=True)
    laptop.run("data", "prepare", "clicks.parquet", "clicks", "--features", "features.yaml")
    storage = ("--set", "cluster.settings.storage=s3://bucket/runs", "--set", "cluster.settings.context=real")
    laptop.run("up", "kubernetes", "--yes", *storage)
    laptop.run("data", "push", "clicks", "s3://bucket/clicks")
    model = ("--model", "my_model:build", "--embedding_dim", "16", "--batch_size", "256", "--deterministic",
             "true")  # fmt: skip
    laptop.run(
        "train", "--name", "own", "--nodes", "1", "--nproc-per-node", "1", "--dataset", "s3://bucket/clicks",
        "--yes", "--detach", "--image", PROGRAM, "--set", "train.settings.cpus=1", "--", *model,
    )  # fmt: skip
    laptop.wait("own", "SUCCEEDED")
    laptop.run("fetch", "own", "--to", "there")
    here = [sys.executable, "-m", "trainer", "--dataset_path", "clicks", "--output_dir", "here", *model]
    subprocess.run(here, cwd=laptop.folder, check=True, capture_output=True)
    digests = [
        json.loads((laptop.folder / place / "summary.json").read_text())["model_digest"]
        for place in ("there", "here")
    ]
    assert digests[0] == digests[1]
    laptop.run("down", "kubernetes", "--cluster", "kubernetes", "--yes")


def _add_on(server: Server, laptop: Laptop, shared: list[dict[str, Any]]) -> None:
    """Install an add-on and remove it."""
    assert server.nodes is not None
    gpus = {"labels": {"nvidia.com/gpu.present": "true"}, "hardware": {"gpus": 1}}
    server.nodes.order(nodes=[*shared, {"name": "gpu", **gpus}])
    laptop.run("addons", "install", "nvidia-device-plugin", "--yes")
    assert "nvidia-device-plugin" in laptop.run("addons", "list")
    laptop.run("addons", "remove", "nvidia-device-plugin", "--yes")


def test_an_evicted_node_costs_a_run_one_pod_which_the_job_controller_replaces(
    server: Server, laptop: Laptop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server.nodes is not None
    for name in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, laptop.environment[name])  # of this process, which reads the run's files
    server.nodes.order(node_timing={"grace_s": 10, "replacement_s": 1}, nodes=[{**NODES[0], "name": "spot"}])
    space = f"{server.namespace}-evicted"
    with server.connect() as kube:
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
        account = {"name": "trainer", "namespace": space}
        kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        program = (sys.executable, "-c", FAKE.read_text(encoding="utf-8"))
        spec = Site(server, tmp_path).spec(
            "evicted",
            nproc_per_node=1,
            image=PROGRAM,
            storage="s3://bucket",
            settings={"cpus": 3},
            target={"fabric": "none", "namespace": space},
            trainer_config={"steps": 10_000, "step_s": 0.1, "checkpoint_interval": 5},
            trainer_command=program,
        )
        engine, run = Site(server, tmp_path).launch(spec)
        await_true(lambda: "rank 0 step 6" in list(engine.logs(run, rank=0, follow=False)))
        server.nodes.order(evict={"node": engine.state(run).workers[1].node, "how": "spot"})
        await_status(engine, run, lambda status: status.preemptions == 1)
        await_status(engine, run, lambda status: status.state is RunState.RUNNING)
        assert engine.stop(run, grace_s=5).state is RunState.INTERRUPTED
        kube.delete("Namespace", space)
    disconnect()


def _settled(kube: Kube) -> dict[str, Any]:
    """The listing, once two in a row are equal: the cluster's own controllers finish behind a change."""
    deadline, old = time.monotonic() + _FINAL_S, listing(kube)
    while (new := listing(kube)) != old:
        assert time.monotonic() < deadline
        old = new
    return new


@pytest.mark.parametrize("launcher", ["torchrun", *OPERATORS])
def test_a_second_apply_of_every_object_changes_no_version(server: Server, launcher: str) -> None:
    space = f"{server.namespace}-{launcher}"
    with server.connect() as kube:
        if launcher in OPERATORS:
            server.serve_kinds(launcher)
            await_true(lambda: kube.kinds.has(OPERATORS[launcher]))
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
        target = replace(FAMILIES["aws-p5"], namespace=space)
        objects = [
            *run_objects(launcher, workload(run="twice"), target, profile(target)),
            *probe_objects(workload(run="twice"), target, profile(target)),
            *guard_objects(target, Guarding(cluster="c", owner="ann", image=IMAGE)),
        ]
        for each in objects:
            kube.apply(each)
        for each in objects:
            assert _is_kept(kube, each), each["kind"]
        kube.delete("Namespace", space)


def _is_kept(kube: Kube, manifest: dict[str, Any]) -> bool:
    """Whether an apply keeps the version; a controller may change the object between two."""
    versions = [kube.apply(manifest)["metadata"]["resourceVersion"] for _ in range(20)]
    return any(one == other for one, other in pairwise(versions))
