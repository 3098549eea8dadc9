"""A user's own script in pods, which are real processes: code, requirements, secret, checkpoints, resume."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.client.client import Kube
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.outputs import read_summary
from cloudrec.launchers.base.protocol import Launcher
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.base.script.pack import Archive, pack
from cloudrec.launchers.base.script.prepare import keep_archive
from cloudrec.launchers.base.script_program import KEY, UserScript, script_command
from cloudrec.launchers.kubernetes.context import disconnect
from cloudrec.observe.runs import view_run
from tests.contract.kubernetes.support import REAL, Server
from tests.contract.kubernetes.support_runs import Site, await_status
from tests.contract.kubernetes.support_store import bucket
from tests.unit.script.support_wheel import write_wheel

CANARY = "c4n4ry-v4lue"
NODES = [{"name": "cpu", "count": 2, "capacity": {"cpu": "4", "memory": "16Gi"}}]
SCRIPT = """
import hashlib, json, os, pathlib, signal, sys, time
import cloudrec
import canary_package
import lib.model

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = pathlib.Path(os.environ["CLOUDREC_CHECKPOINTS"])
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
secret = hashlib.sha256(os.environ["WANDB_API_KEY"].encode()).hexdigest()
print("rank", rank, "of", world, lib.model.NAME, canary_package.VERSION, secret, flush=True)
mark = folder / f".rank-{rank}"
first = int(mark.read_text()) if mark.exists() else 0
print("begins at", first, flush=True)
last = first + 20 if first else int(sys.argv[sys.argv.index("--steps") + 1])
for step in range(first + 1, last + 1):
    time.sleep(0.05)
    draft = folder / f"draft-{rank}"
    draft.write_text(str(step))
    draft.rename(mark)
    cloudrec.log(step=step, loss=1 / step)
    if stopped and pathlib.Path(os.environ["CLOUDREC_STOP_FILE"]).exists():
        sys.exit(75)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, dict[str, str]]]:
    with bucket(tmp_path_factory.mktemp("store")) as opened:
        yield opened


@pytest.fixture
def site(server: Server, kube: Kube, tmp_path: Path) -> Iterator[Site]:
    if REAL in os.environ:
        pytest.skip("a real server has no nodes here that could reach this machine's bucket")
    server.control(
        nodes=NODES, processes=True, bookkeeping={}, operators=["pytorchjob", "trainjob", "rayjob"]
    )
    if kube.get("Secret", "wandb", namespace=server.namespace) is None:
        secret = {"name": "wandb", "namespace": server.namespace}
        kube.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": secret, "stringData": {"api-key": CANARY}}
        )
    yield Site(server, tmp_path)
    disconnect()


def _pack(folder: Path) -> Archive:
    work = folder / "work"
    (work / "lib").mkdir(parents=True)
    (work / "train.py").write_text(SCRIPT, encoding="utf-8")
    (work / "lib" / "model.py").write_text("NAME = 'mine'\n", encoding="utf-8")
    (work / "requirements.txt").write_text(f"{write_wheel(work / 'wheels')}\n", encoding="utf-8")
    for foreign in ("trainer", "yaml", "click"):  # the agent must not import them
        (work / f"{foreign}.py").write_text("raise SystemExit('the wrong module')\n", encoding="utf-8")
    return pack(work)


def _folder(site: Site) -> str:
    """The test's folder in the bucket, which the tests of both servers share."""
    return f"bucket/{site.folder.name}"


def _launch(
    site: Site, how: str, environment: dict[str, str], name: str, steps: int, **changes: Any
) -> tuple[Launcher, RunFolder]:
    archive = _pack(site.folder)
    script = UserScript(
        file="train.py",
        digest=archive.digest,
        arguments=("--config", "own.yaml", "--steps", str(steps)),
        requirements="requirements.txt",
        secrets=("WANDB_API_KEY",),
    )
    usual = {
        "nodes": 2,
        "nproc_per_node": 1,
        "storage": f"s3://{_folder(site)}",
        "settings": {"cpus": 1},
        "environment": environment,
        "target": {"fabric": "none"},
        "trainer_config": {KEY: script.document()},
        "trainer_command": script_command(),
        "script": script,
        "secrets": {"WANDB_API_KEY": "wandb/api-key"},
        "stop_grace_s": 20,
    }
    engine, run = site.create(site.spec(name, how, **{**usual, **changes}))
    keep_archive(run, archive.data)
    engine.preflight(run.spec())
    engine.submit(run)
    return engine, run


def _lines(engine: Launcher, run: RunFolder, rank: int) -> list[str]:
    return list(engine.logs(run, rank=rank, follow=True))


@pytest.mark.parametrize(
    "how", ["torchrun", "pytorchjob", "trainjob", pytest.param("rayjob", marks=pytest.mark.soak)]
)
def test_a_script_runs_in_each_operators_pods_with_its_code_requirements_and_secret(
    site: Site, kube: Kube, store: tuple[Any, dict[str, str]], how: str
) -> None:
    files, environment = store
    engine, run = _launch(site, how, environment, f"own-{how}", steps=3)
    status = await_status(engine, run, lambda status: status.state.is_final, 240)
    digest = hashlib.sha256(CANARY.encode()).hexdigest()
    for rank in range(2):
        assert f"rank {rank} of 2 mine 1.0 {digest}" in _lines(engine, run, rank)
    assert status.state is RunState.SUCCEEDED, status
    assert read_summary(run)["status"] == "finished"
    view = view_run(run)
    assert (view.step or 0) >= 3
    assert view.loss == 1 / (view.step or 1)
    kept = {name.removeprefix(f"{_folder(site)}/") for name in files.find(_folder(site))}
    assert {f"runs/{run.name}/checkpoints/%2Erank-{rank}" for rank in range(2)} <= kept
    assert len([name for name in kept if name.startswith("code/")]) == 1
    _assert_no_canary(files, kube, site, run)


def _assert_no_canary(files: Any, kube: Kube, site: Site, run: RunFolder) -> None:
    """The value is in the Secret alone: in no file of the bucket, of the run's folder, and in no object."""
    leaks = [name for name in files.find("bucket") if CANARY.encode() in files.cat_file(name)]
    leaks += [
        str(path) for path in run.path.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()
    ]
    for kind in ("ConfigMap", "Pod", "batch/v1/Job", "Event"):
        found = kube.list(kind, namespace=site.server.namespace)
        leaks += [each["metadata"]["name"] for each in found if CANARY in json.dumps(each)]
    assert leaks == []


def test_a_stopped_script_continues_on_new_pods_with_its_checkpoints(
    site: Site, store: tuple[Any, dict[str, str]]
) -> None:
    engine, run = _launch(site, "torchrun", store[1], "moved", steps=100_000)
    await_status(engine, run, lambda _: (view_run(run).step or 0) > 5, 240)
    stopped = engine.stop(run)
    assert stopped.state is RunState.INTERRUPTED
    step = view_run(run).step or 0
    engine.submit(run)
    status = await_status(engine, run, lambda status: status.state.is_final, 240)
    assert status.state is RunState.SUCCEEDED, status
    for rank in range(2):
        begins = [int(line.split()[-1]) for line in _lines(engine, run, rank) if line.startswith("begins at")]
        assert begins[0] == 0
        assert begins[-1] > 5
    assert (view_run(run).step or 0) >= step + 10


def test_a_secret_or_a_key_that_does_not_exist_is_refused_before_the_launch(site: Site) -> None:
    spec: RunSpec = site.spec("no", settings={"cpus": 1}, target={"fabric": "none"}, nodes=1)
    engine, _ = site.create(spec)
    with pytest.raises(
        PreflightError, match=r"the Secret 'wandb' .*no key 'token'; it has: api-key"
    ) as error:
        engine.preflight(replace(spec, secrets={"A": "wandb/token"}))
    assert CANARY not in f"{error.value}{error.value.remedy}"
    with pytest.raises(PreflightError, match="no such Secret") as error:
        engine.preflight(replace(spec, secrets={"A": "A"}))
    assert "kubectl create secret generic cloudrec-secrets" in str(error.value.remedy)
