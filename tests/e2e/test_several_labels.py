"""Several labels by the command line: tables to scores. Models learn a teacher of tasks in conflict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from sklearn.metrics import roc_auc_score

from tests.trainer.support_tasks import ENOUGH, SCHEMA, TASKS, TaskLesson, make_lesson

ROOT = Path(__file__).parents[2]
_PATIENCE_S = 240.0
_MODEL = (
    "--embedding_dim",
    "8",
    "--over_arch_layer_sizes",
    "64,32,1",
    "--num_experts",
    "3",
    "--threads",
    "1",
)
_RATES = ("--batch_size", "256", "--learning_rate", "0.1", "--dense_learning_rate", "0.005")


def _start(words: tuple[str, ...], folder: Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "CLOUDREC_HOME": str(folder / "home"),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _run(folder: Path, *words: str, code: int = 0) -> str:
    with _start(words, folder) as process:
        out, err = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == code, err
    return out if code == 0 else err


def _prepare(folder: Path, out: str, rows: str) -> None:
    (folder / "features.yaml").write_text(SCHEMA)
    _run(folder, "cloudrec", "data", "prepare", rows, out, "--features", "features.yaml")


def _train(folder: Path, data: str, run: str, model: str, *more: str) -> dict[str, Any]:
    """Train by the command line; return the summary."""
    where = ("--dataset_path", data, "--output_dir", run, "--model", model)
    _run(folder, "trainer", *where, *_MODEL, *_RATES, "--num_epochs", "4", *more)
    return _summary(folder / run)


def _summary(run: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return summary


def _aucs(summary: dict[str, Any]) -> dict[str, float]:
    return {task: metrics["auc"] for task, metrics in summary["tasks"].items()}


@pytest.fixture(scope="module")
def lesson() -> TaskLesson:
    lesson = make_lesson()
    assert all(lesson.best[task] - lesson.linear[task] > 0.08 for task in TASKS)
    return lesson


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, lesson: TaskLesson) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    lesson.train.write(folder / "rows" / "train" / "rows.parquet")
    lesson.test.write(folder / "rows" / "test" / "rows.parquet")
    _prepare(folder, "data", "rows")
    return folder


@pytest.mark.parametrize("model", ["mmoe", "ple"])
def test_every_task_is_learned_and_scored(folder: Path, lesson: TaskLesson, model: str) -> None:
    summary = _train(folder, "data", model, model)
    closed = lesson.gaps_closed(_aucs(summary))
    assert all(part >= ENOUGH for part in closed.values()), closed
    assert summary["auc"] == pytest.approx(np.mean(list(_aucs(summary).values())))

    predict = ("trainer.predict", "--dataset_path", "data", "--out")
    printed = json.loads(_run(folder, *predict, "scores.npy", "--checkpoint", f"{model}/checkpoints"))
    scores = np.load(folder / "scores.npy")
    assert scores.shape == (len(lesson.test.price), len(TASKS))
    for place, task in enumerate(printed["tasks"]):
        known = lesson.test.known[task]
        auc = roc_auc_score(lesson.test.labels[task][known], scores[known, place])
        assert printed["tasks"][task]["auc"] == pytest.approx(auc, abs=1e-6)
        assert printed["tasks"][task]["samples"] == known.sum()
        assert auc == pytest.approx(_aucs(summary)[task], abs=1e-6)
    assert tuple(printed["tasks"]) == TASKS

    export = ("trainer.export", "--checkpoint", f"{model}/checkpoints", "--out", f"{model}-export")
    assert json.loads(_run(folder, *export))["tasks"] == list(TASKS)
    _run(folder, *predict, "again.npy", "--checkpoint", f"{model}-export")
    assert (folder / "again.npy").read_bytes() == (folder / "scores.npy").read_bytes()


def test_shuffled_labels_of_one_task_fail(folder: Path, lesson: TaskLesson) -> None:
    rows, labels = folder / "shuffled-rows", dict(lesson.train.labels)
    labels["shared"] = np.random.default_rng(0).permutation(labels["shared"])
    lesson.train.write(rows / "train" / "rows.parquet", labels)
    lesson.test.write(rows / "test" / "rows.parquet")
    _prepare(folder, "shuffled", rows.name)
    closed = lesson.gaps_closed(_aucs(_train(folder, "shuffled", "shuffled-run", "mmoe")))
    assert closed["shared"] < ENOUGH
    assert min(closed["clicked"], closed["bought"]) >= ENOUGH - 0.05, "the others must hardly suffer"


def test_a_model_without_separate_tasks_fails(folder: Path, lesson: TaskLesson) -> None:
    model = "tests.trainer.own_tasks:of_one_opinion"
    closed = lesson.gaps_closed(_aucs(_train(folder, "data", "one-opinion", model)))
    assert sum(part < ENOUGH for part in closed.values()) >= 2, closed


@pytest.mark.parametrize(("model", "ranks"), [("mmoe", 2), ("ple", 1)])
def test_killed_and_resumed_is_the_same_model_bit_by_bit(folder: Path, model: str, ranks: int) -> None:
    whole, killed = (f"{name}-{model}-{ranks}" for name in ("whole", "killed"))
    agent = ("torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m")
    more = ("--deterministic", "true", "--checkpoint_interval", "50", "--checkpoint_async", "false")
    words = (
        *(agent if ranks > 1 else ()),
        *("trainer", "--dataset_path", "data", "--model", model, *_MODEL, *_RATES, *more),
        *("--num_iterations", "400", "--output_dir"),
    )
    _run(folder, *words, whole)
    process = _start((*words, killed), folder)
    deadline = time.monotonic() + _PATIENCE_S
    while not list((folder / killed).glob("checkpoints/step-*/commit-*.json")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for each in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
        each.kill()  # torchrun starts ranks in new sessions
    process.communicate()
    assert not (folder / killed / "summary.json").exists(), "it must be killed before its end"
    _run(folder, *words, killed)
    lines = map(json.loads, (folder / killed / "metrics.jsonl").read_text().splitlines())
    assert [line["resumed_from"] for line in lines if line["kind"] == "start"][-1]
    for name in ("model_digest", "samples_digest", "tasks"):
        assert _summary(folder / killed)[name] == _summary(folder / whole)[name]


def test_other_labels_are_refused(folder: Path) -> None:
    """By a model of one score, by a run that resumes with other sizes or weights, and by predictions."""
    few = ("trainer", "--num_iterations", "3", *_RATES, *_MODEL, "--output_dir", "few", "--model")
    err = _run(folder, *few, "wide_deep", "--dataset_path", "data", code=64)
    assert "model wide_deep gives one score a sample, but the data has 3 labels" in err
    _run(folder, *few, "mmoe", "--dataset_path", "data")
    err = _run(folder, *few, "mmoe", "--dataset_path", "data", "--num_experts", "2", code=1)
    assert "num_experts" in err
    (folder / "heavy.yaml").write_text(SCHEMA.replace("missing: skip", "missing: skip, weight: 3"))
    _run(folder, "cloudrec", "data", "prepare", "rows", "heavy", "--features", "heavy.yaml")
    assert "tasks" in _run(folder, *few, "mmoe", "--dataset_path", "heavy", code=1)
    (folder / "one.yaml").write_text(SCHEMA.replace(SCHEMA.splitlines()[0], "label: clicked"))
    _run(folder, "cloudrec", "data", "prepare", "rows", "one", "--features", "one.yaml")
    predict = ("trainer.predict", "--checkpoint", "few/checkpoints", "--dataset_path", "one")
    assert "learned clicked, bought, shared, the dataset has one label" in _run(folder, *predict, code=65)
