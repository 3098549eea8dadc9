"""docs/features.md as it is written: any columns and a model of the user's own; also killed and resumed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.contract.support_guides import DOCS, follow

_COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)
_PATIENCE_S = 240.0


def _start(words: list[str], folder: Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "CLOUDREC_HOME": str(folder / "home"),
        "PYTHONPATH": str(DOCS.parent),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _run(words: list[str], folder: Path) -> str:
    with _start(words, folder) as process:
        out, err = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 0, err
    return out


def _words(command: str) -> list[str]:
    program, *rest = shlex.split(command)
    return [sys.executable, *(["-m", "cloudrec"] if program == "cloudrec" else []), *rest]


@pytest.fixture(scope="module")
def commands() -> list[str]:
    text = (DOCS / "features.md").read_text(encoding="utf-8")
    return _COMMAND.findall(text.replace("\\\n", " "))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, commands: list[str]) -> Path:
    """The page's folder after all its commands."""
    folder = tmp_path_factory.mktemp("page")
    follow("features.md", folder)
    for command in commands:
        (folder / "printed.txt").write_text(_run(_words(command), folder))
    return folder


def _summary(run: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return summary


def test_the_page_works_as_it_is_written(folder: Path, commands: list[str]) -> None:
    assert len(commands) == 7
    assert len((folder / "my_model.py").read_text().splitlines()) <= 40
    scores = np.load(folder / "scores.npy")
    assert 600 < len(scores) < 1_000
    assert _summary(folder / "run")["auc"] > 0.65
    raw = json.loads((folder / "printed.txt").read_text())
    assert (raw["samples"], raw["bad_rows"]) == (8_000, 0)
    assert raw["auc"] > 0.65
    assert np.load(folder / "raw.npy").shape == (8_000,)


def test_tomorrows_rows_are_scored_like_the_held_out_ones(folder: Path) -> None:
    score = "python -m trainer.predict --checkpoint run/checkpoints --dataset_path tomorrow"
    tomorrow = json.loads(_run(_words(score), folder))
    assert tomorrow["auc"] == pytest.approx(_summary(folder / "run")["auc"], abs=1e-6)


def _train(commands: list[str], run: str, *, ranks: int) -> list[str]:
    """The page's training with small checkpoint intervals, on any number of ranks."""
    (command,) = (each for each in commands if "-m trainer --dataset" in each)
    words = _words(command.replace("--output_dir run", f"--output_dir {run}"))
    words += [
        "--checkpoint_interval",
        "20",
        "--checkpoint_async",
        "false",
        "--num_epochs",
        "10",
        "--threads",
        "1",
    ]
    if ranks == 1:
        return words
    agent = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    words[words.index("256")] = str(256 // ranks)
    return [words[0], *agent, *words[1:]]


def _steps(run: Path) -> list[int]:
    """The steps whose checkpoints are committed."""
    return [int(path.parent.name.split("-")[-1]) for path in run.glob("checkpoints/step-*/commit-*.json")]


@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_and_resumed_is_the_same_model_bit_by_bit(
    folder: Path, commands: list[str], ranks: int
) -> None:
    whole, killed = folder / f"whole-{ranks}", folder / f"killed-{ranks}"
    _run(_train(commands, whole.name, ranks=ranks), folder)
    process = _start(_train(commands, killed.name, ranks=ranks), folder)
    deadline = time.monotonic() + _PATIENCE_S
    while not _steps(killed):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for each in family:  # torchrun starts ranks in new sessions
        each.kill()
    process.communicate()
    assert not (killed / "summary.json").exists(), "it must be killed before its end"
    _run(_train(commands, killed.name, ranks=ranks), folder)
    starts = [
        line
        for line in map(json.loads, (killed / "metrics.jsonl").read_text().splitlines())
        if line["kind"] == "start"
    ]
    assert starts[-1]["resumed_from"]
    for name in ("model_digest", "samples_digest", "auc"):
        assert _summary(killed)[name] == _summary(whole)[name]


def test_an_export_scores_the_same_and_prepares_more_data(folder: Path) -> None:
    _run(
        [sys.executable, "-m", "trainer.export", "--checkpoint", "run/checkpoints", "--out", "model"], folder
    )
    words = _words("cloudrec data prepare clicks.parquet again --like model")
    _run(words, folder)
    score = ["-m", "trainer.predict", "--checkpoint", "model", "--dataset_path", "again", "--out", "e.npy"]
    _run([sys.executable, *score], folder)
    assert (folder / "e.npy").read_bytes() == (folder / "scores.npy").read_bytes()


def test_data_of_another_encoding_is_refused(folder: Path) -> None:
    text = (folder / "features.yaml").read_text().replace("buckets: 500", "buckets: 501")
    (folder / "other.yaml").write_text(text)
    _run(_words("cloudrec data prepare clicks.parquet other --features other.yaml"), folder)
    score = ["-m", "trainer.predict", "--checkpoint", "run/checkpoints", "--dataset_path", "other"]
    with _start([sys.executable, *score], folder) as process:
        _, err = process.communicate(timeout=_PATIENCE_S)
    digests = [
        json.loads((folder / name / "dataset.json").read_text())["encoding"]["digest"]
        for name in ("data", "other")
    ]
    assert process.returncode == 65
    assert all(digest[:12] in err for digest in digests)
    assert "data prepare --like" in err
