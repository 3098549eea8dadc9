"""docs/features.md in pods: the model of the page; its node is taken, the run resumes, the model predicts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contract.kubernetes.support import REAL, Server
from tests.contract.kubernetes.support_store import bucket
from tests.contract.kubernetes.test_control_plane import PROGRAM, Laptop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PAGE = Path(__file__).parents[3] / "docs" / "features.md"
PATIENCE_S = 300.0
NODES = [{"name": "cpu", "count": 2, "capacity": {"cpu": "4", "memory": "16Gi"}}]
MODEL = (
    *("--model", "my_model:build", "--embedding_dim", "16", "--batch_size", "256", "--deterministic", "true"),
    *("--num_epochs", "3", "--checkpoint_interval", "15", "--checkpoint_async", "false"),
)


@pytest.fixture
def store(server: Server, tmp_path: Path) -> Iterator[tuple[Any, Laptop, tuple[str, ...]]]:
    """The bucket, the user's machine with the page's files, and the options that pods need to reach it."""
    if REAL in os.environ or server.announcement is None:
        pytest.skip("test_control_plane trains the model on a real control plane")
    server.control(
        nodes=NODES, processes=True, bookkeeping={}, node_timing={"replacement_s": 1}, operators=[]
    )
    for name, text in re.findall(r"`([\w.]+)`:\n\n```\w+\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        (tmp_path / name).write_text(text, encoding="utf-8")
    with bucket(tmp_path) as (files, variables):
        keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "KUBECONFIG": server.kubeconfig}
        shown = {name: variables[name] for name in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION")}
        home = {"CLOUDREC_HOME": str(tmp_path / "home"), "PYTHONPATH": str(PAGE.parents[1])}
        of_pods = tuple(word for each in variables.items() for word in ("--env", "=".join(each)))
        yield files, Laptop(folder=tmp_path, environment={**os.environ, **keys, **shown, **home}), of_pods


def _python(laptop: Laptop, *words: str) -> None:
    subprocess.run(
        [sys.executable, *words], cwd=laptop.folder, env=laptop.environment, check=True, capture_output=True
    )


def _node_at_first_checkpoint(server: Server, files: Any, laptop: Laptop, run: str) -> str:
    """The node of a run's pod, once a checkpoint is committed."""
    deadline = time.monotonic() + PATIENCE_S
    while not files.glob(f"bucket/runs/**/{run}/**/commit-*.json"):
        files.invalidate_cache()
        assert time.monotonic() < deadline, laptop.state(run)
        time.sleep(0.05)
    with server.connect() as kube:
        pods = kube.list("Pod", namespace=server.namespace, labels={"cloudrec/run": run})
    # A pod that has ended, and that the Job has replaced, is listed too.
    (pod,) = [each for each in pods if each["status"]["phase"] == "Running"]
    return str(pod["spec"]["nodeName"])


def test_a_run_whose_node_is_taken_gives_the_same_model_and_scores(
    server: Server, store: tuple[Any, Laptop, tuple[str, ...]]
) -> None:
    files, laptop, of_pods = store
    _python(laptop, "make_clicks.py")
    laptop.run("data", "prepare", "clicks.parquet", "data", "--features", "features.yaml")
    settings = {"storage": "s3://bucket/runs", "context": server.context, "namespace": server.namespace}
    given = [word for each in settings.items() for word in ("--set", "cluster.settings.{}={}".format(*each))]
    laptop.run("up", "kubernetes", "--yes", *given)
    laptop.run("data", "push", "data", "s3://bucket/data")

    def train(name: str) -> None:
        laptop.run(
            *("train", "--name", name, "--nodes", "1", "--nproc-per-node", "1", "--yes", "--detach"),
            *("--dataset", "s3://bucket/data", "--image", PROGRAM, "--set", "train.settings.cpus=1"),
            *(*of_pods, "--", *MODEL),
        )

    train("whole")
    laptop.wait("whole", "SUCCEEDED")
    train("killed")
    node = _node_at_first_checkpoint(server, files, laptop, "killed")
    server.control(evict={"node": node, "how": "spot"})
    laptop.wait("killed", "SUCCEEDED")

    summaries, scores = {}, {}
    for name in ("whole", "killed"):
        laptop.run("fetch", name, "--to", name, "--checkpoints")
        summaries[name] = json.loads((laptop.folder / name / "summary.json").read_text())
        words = ("--checkpoint", f"{name}/checkpoints", "--dataset_path", "data", "--out", f"{name}.npy")
        _python(laptop, "-m", "trainer.predict", *words)
        scores[name] = np.load(laptop.folder / f"{name}.npy")
    records = [
        json.loads(line) for line in (laptop.folder / "killed" / "metrics.jsonl").read_text().splitlines()
    ]
    starts = [each for each in records if each["kind"] == "start"]
    assert len(starts) == 2, "it must be killed before its end"
    assert starts[1]["resumed_from"]
    for key in ("model_digest", "samples_digest", "auc"):
        assert summaries["killed"][key] == summaries["whole"][key]
    assert np.array_equal(scores["killed"], scores["whole"])
    laptop.run("down", "kubernetes", "--cluster", "kubernetes", "--yes")
