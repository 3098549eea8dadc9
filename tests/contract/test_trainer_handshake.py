"""The trainer's interface for launchers: flags, files, keys and exit codes."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import command

if TYPE_CHECKING:
    from pathlib import Path

WELL_KNOWN_FLAGS = (
    *("batch_size", "embedding_dim", "num_embeddings", "num_embeddings_per_feature"),
    *("dense_arch_layer_sizes", "over_arch_layer_sizes", "learning_rate", "num_iterations", "num_epochs"),
    *("dataset_path", "qcomm_forward_precision", "qcomm_backward_precision"),
    *("output_dir", "checkpoint_dir", "checkpoint_interval", "keep_checkpoints", "resume", "deterministic"),
)
NUMBER = (int, float)
TRAIN = {
    **dict.fromkeys(("attempt", "step", "epoch", "samples"), int),
    **dict.fromkeys(("loss", "lr", "samples_per_s", "step_s", "data_wait_s", "ckpt_stall_s", "time"), NUMBER),
}
EVAL = {"step": int, "samples": int, **dict.fromkeys(("auc", "logloss", "ne", "calibration", "time"), NUMBER)}
CHECKPOINT = {"step": int, "seconds": NUMBER, "bytes": int, "time": NUMBER}
START = {"step": int, "attempt": int, "world_size": int, "total_steps": int, "time": NUMBER}
SUMMARY = {
    **dict.fromkeys(("schema_version", "step", "samples_seen", "restarts", "world_size"), int),
    **dict.fromkeys(("status", "samples_digest", "model_digest"), str),
    **dict.fromkeys(("epochs", "auc", "logloss", "ne", "calibration"), NUMBER),
    **dict.fromkeys(("samples_per_s", "wall_s", "goodput"), NUMBER),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("handshake")
    write_dataset(folder / "data", train_rows=500, test_rows=100, num_dense=3, num_sparse=3)
    words = command(folder / "data", folder / "run", eval_interval=10, checkpoint_interval=10)
    return folder / "run", _run(words)


def _run(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=180
    )


def _trainer(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return _run([sys.executable, "-m", "trainer", *words], **environment)


def _lacking(values: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """The keys that are missing or have another type."""
    return [name for name, kind in expected.items() if not isinstance(values.get(name), kind)]


def test_a_signal_during_shutdown_does_not_change_the_exit_code() -> None:
    ended_late = (
        "import atexit, os, runpy, signal, sys\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGTERM)\n"
        "sys.argv = ['trainer', '--check_config', '--dataset_path', 'nowhere', '--output_dir', 'nowhere']\n"
        "runpy.run_module('trainer', run_name='__main__')"
    )
    done = _run([sys.executable, "-c", ended_late])
    assert done.returncode == 0, done.stderr


def test_help_names_every_well_known_flag() -> None:
    shown = _trainer("--help")
    assert shown.returncode == 0
    assert [flag for flag in WELL_KNOWN_FLAGS if f"--{flag}" not in shown.stdout] == []


def test_a_finished_run_ends_with_0_and_nothing_on_stderr(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    done = finished[1]
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "finished at step 20 of 20, 500 samples"


def test_metrics_have_the_documented_keys(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    lines = [json.loads(line) for line in (finished[0] / "metrics.jsonl").read_text().splitlines()]
    kinds = {"start": START, "train": TRAIN, "eval": EVAL, "checkpoint": CHECKPOINT}
    assert {line["kind"] for line in lines} == set(kinds)
    assert [(line, lacking) for line in lines if (lacking := _lacking(line, kinds[line["kind"]]))] == []
    assert lines[0]["resumed_from"] is None
    assert all(math.isfinite(line["loss"]) for line in lines if line["kind"] == "train")


def test_the_summary_has_the_documented_keys(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    summary = json.loads((finished[0] / "summary.json").read_text())
    assert _lacking(summary, SUMMARY) == []
    assert (
        _lacking(summary["checkpoint"], {"count": int, "seconds": NUMBER, "bytes": int, "last_step": int})
        == []
    )
    assert set(summary["versions"]) == {"torch", "torchrec", "fbgemm", "python", "cloudrec"}
    assert re.fullmatch(r"[0-9a-f]{64}", summary["model_digest"])


def test_every_checkpoint_has_one_commit_file(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folders = sorted((finished[0] / "checkpoints").glob("step-*"))
    assert [folder.name for folder in folders] == ["step-00000010", "step-00000020"]
    assert all(len(list(folder.glob("commit-*.json"))) == 1 for folder in folders)


@pytest.mark.parametrize(
    ("words", "environment", "code", "message"),
    [
        (["--learning_rate", "-1"], {}, 64, "error: learning_rate: input should be greater than 0"),
        (["--dataset_path", "nowhere"], {}, 65, "error: "),
        (
            ["--dataset_path", "nowhere"],
            {"PROCESS_GROUP_TIMEOUT_SECONDS": "soon"},
            64,
            "error: PROCESS_GROUP",
        ),
        (
            ["--dataset_path", "nowhere"],
            {"WORLD_SIZE": "2"},
            64,
            "error: the environment has some of torchrun's",
        ),
        (
            ["--dataset_path", "nowhere", "--device", "cuda"],
            {},
            64,
            "error: device is cuda, but torch sees no GPU",
        ),
    ],
)
def test_exit_codes_distinguish_bad_configuration_from_bad_data(
    tmp_path: Path, words: list[str], environment: dict[str, str], code: int, message: str
) -> None:
    done = _trainer(*words, "--output_dir", str(tmp_path), **environment)
    assert done.returncode == code
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
