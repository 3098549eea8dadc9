"""A container that a signal ends is started again in its pod: no new pod, no new copy of the data."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.kubernetes.manifests.names import RUN
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.protocol import RunStatus
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.base.runspec import default_trainer_command
from tests.conformance.support_launchers import ENGINES, LONG, Engine, worker
from tests.conformance.test_launchers import MODEL
from tests.tallies import Tally
from tests.trainer.support_dataset import write_dataset

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module", params=["kubernetes", "control-plane"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with ENGINES[request.param](tmp_path_factory.mktemp(request.param)) as engine:
        yield engine


def _kill_container(run: RunFolder, rank: int) -> None:
    """Kill the first process of the pod of a rank, as the kernel does where memory runs out."""
    above = worker(run, rank).parents()
    agents = [each for each in above if each.cmdline()[3:5] == ["cloudrec.agent", "agent"]]
    assert agents, [each.cmdline() for each in above]
    agents[-1].kill()


def _uids(engine: Engine, run: RunFolder) -> dict[str, str]:
    """The uid of each pod by its node."""
    target = engine.usual["target"]
    assert isinstance(target, ClusterTarget)
    with Kube.connect(target) as kube:
        pods = kube.list("v1/Pod", namespace="default", labels=f"{RUN}={run.name}")
    return {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for pod in pods}


def _starts(run: RunFolder) -> list[dict[str, Any]]:
    text = run.metrics_file.read_text("utf-8") if run.metrics_file.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    return [each for each in lines if each["kind"] == "start"]


def _has_saved(run: RunFolder, _: RunStatus) -> bool:
    return run.metrics_file.exists() and '"kind": "checkpoint"' in run.metrics_file.read_text("utf-8")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_container_resumes_in_its_pod_and_changes_no_digest(
    engine: Engine, tmp_path: Path, rank: int, tally: Tally
) -> None:
    import s3fs  # noqa: PLC0415 - an extra

    write_dataset(tmp_path / "data", train_rows=1003, test_rows=200, num_dense=3, num_sparse=4)
    endpoint = engine.usual["environment"]["AWS_ENDPOINT_URL"]
    data = f"{engine.bucket}/data-{rank}"
    s3fs.S3FileSystem(endpoint_url=endpoint).put(str(tmp_path / "data"), data, recursive=True)
    config = {**MODEL, "dataset_path": data, "num_epochs": 80}
    summaries = []
    for name in (f"calm-{rank}", f"struck-{rank}"):
        run = engine.launch(name, config, trainer_command=default_trainer_command())
        if name.startswith("struck"):
            engine.wait(run, partial(_has_saved, run))
            before, killed = _uids(engine, run), time.time()
            _kill_container(run, rank)
            engine.wait(run, lambda _, run=run: len(_starts(run)) > 1)  # type: ignore[misc]
            assert _uids(engine, run) == before
            assert _starts(run)[1]["near_bytes"] > 0
            tally(f"rank {rank}: {_starts(run)[1]['time'] - killed:.1f} s to the next start of the ranks")
        status = engine.end(run)
        assert status.state is RunState.SUCCEEDED, engine.last_words(run)
        engine.launcher.collect(run)
        summaries.append(json.loads(run.summary_file.read_text(encoding="utf-8")))
    lost = [event.details for event in run.ledger.read() if event.event == "pod_lost"]
    assert [each["exit_code"] for each in lost] == [137]
    assert "started again in its pod" in str(lost[0]["cause"])
    calm, struck = summaries
    assert struck["restarts"] >= 1
    for name in ("samples_seen", "samples_digest", "model_digest"):
        assert struck[name] == calm[name]


def test_a_container_that_is_killed_too_often_ends_the_run(engine: Engine) -> None:
    run = engine.launch("hopeless", {**LONG, "checkpoint_interval": 5})
    for kill in range(3):  # max_restarts is 2
        engine.wait(run, lambda _, kill=kill: len(engine.begun_at(run)) > kill)  # type: ignore[misc]
        time.sleep(1)
        _kill_container(run, 1)
    status = engine.end(run)
    assert status.state is RunState.FAILED, engine.last_words(run)
    assert "its container was killed 3 times" in (status.cause or "")
    assert not [each for each in psutil.process_iter(["environ"]) if _is_of(each, run)]


def _is_of(process: psutil.Process, run: RunFolder) -> bool:
    environment = process.info["environ"] or {}
    return environment.get("CLOUDREC_RUN") == run.name and process.is_running()
