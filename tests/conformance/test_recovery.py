"""What happens from the notice of one machine to the next step of the run, in seconds by part.

The other machine stays. All clocks are those of one machine: the pods' statuses, and the run's files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.kubernetes.manifests.names import RUN
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.protocol import RunStatus
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.base.runspec import default_trainer_command
from tests.conformance.support_launchers import ENGINES, Engine
from tests.conformance.test_launchers import MODEL
from tests.tallies import Tally
from tests.trainer.support_dataset import write_dataset

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with ENGINES["kubernetes"](tmp_path_factory.mktemp("kubernetes")) as engine:
        yield engine


def lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text("utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def of_kind(run: RunFolder, kind: str) -> list[dict[str, Any]]:
    return [each for each in lines(run.metrics_file) if each["kind"] == kind]


def goes_on(run: RunFolder, notice: float, _: RunStatus) -> bool:
    """Whether a step was reported by an attempt that began after the notice."""
    begun = [each["time"] for each in of_kind(run, "start") if each["time"] > notice]
    return bool(begun) and any(each["time"] > begun[0] for each in of_kind(run, "train"))


def pods(engine: Engine, run: RunFolder) -> list[dict[str, Any]]:
    target = engine.usual["target"]
    assert isinstance(target, ClusterTarget)
    with Kube.connect(target) as kube:
        return list(kube.list("v1/Pod", namespace="default", labels=f"{RUN}={run.name}"))


def moments_of(found: list[dict[str, Any]], state: str, moment: str) -> list[float]:
    """When the containers of pods came into a state."""
    states = [
        each.get("state") or {} for pod in found for each in pod["status"].get("containerStatuses") or ()
    ]
    return sorted(datetime.fromisoformat(each[state][moment]).timestamp() for each in states if state in each)


def test_the_parts_of_a_recovery_add_up_to_the_time_from_notice_to_step(
    engine: Engine, tmp_path: Path, tally: Tally
) -> None:
    import s3fs  # noqa: PLC0415 - an extra

    write_dataset(tmp_path / "data", train_rows=1003, test_rows=200, num_dense=3, num_sparse=4)
    endpoint = engine.usual["environment"]["AWS_ENDPOINT_URL"]
    data = f"{engine.bucket}/data"
    s3fs.S3FileSystem(endpoint_url=endpoint).put(str(tmp_path / "data"), data, recursive=True)
    config = {**MODEL, "dataset_path": data, "num_epochs": 150, "log_interval": 1}
    run = engine.launch("noticed", config, trainer_command=default_trainer_command())
    engine.wait(run, lambda _: len(of_kind(run, "checkpoint")) > 0)
    before = {pod["metadata"]["uid"] for pod in pods(engine, run)}
    notice = time.time()
    engine.take_machine(run)
    engine.wait(run, partial(goes_on, run, notice))
    after = pods(engine, run)
    status = engine.end(run)
    assert status.state is RunState.SUCCEEDED, engine.last_words(run)
    engine.launcher.collect(run)
    saved = min(each["time"] for each in of_kind(run, "checkpoint") if each["time"] > notice)
    old = [pod for pod in after if pod["metadata"]["uid"] in before]
    (survivor,) = [pod for pod in old if pod["status"]["phase"] == "Running"]
    ended = moments_of(old, "terminated", "finishedAt")[-1]
    container = moments_of([pod for pod in after if pod not in old], "running", "startedAt")[-1]
    (attempt, *_) = [
        each
        for each in lines(run.path / "goodput.jsonl")
        if each["kind"] == "start" and each["time"] > notice
    ]
    opened = next(each for each in of_kind(run, "start") if each["time"] > notice)
    first = next(each for each in of_kind(run, "train") if each["time"] > opened["time"])
    moments = {
        "notice to the checkpoint's commit": saved,
        "commit to the end of the lost machine's pod": ended,
        "end of the pod to the start of the new one's container": container,
        "container to the start of the ranks": attempt["time"],
        "start of the ranks to the read of the checkpoint (imports, process group, data)": opened["time"]
        - opened["resume_s"],
        "read of the checkpoint": opened["time"],
        "to the first step": first["time"],
    }
    at = notice
    tally(f"\nfrom the notice to the next step: {first['time'] - notice:.1f} s")
    for part, moment in moments.items():
        tally(f"{moment - at:7.2f} s  {part}")
        at = moment
    tally(f"the pod {survivor['metadata']['name']} stayed; {status.attempt} restart")
    order = list(moments.values())
    # The container's time has whole seconds.
    assert all(later > earlier - 1 for earlier, later in pairwise(order))
    assert first["time"] - notice < 300
