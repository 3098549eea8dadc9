"""Weights & Biases and MLflow: what they get, and that training waits for neither."""

from __future__ import annotations

import fcntl
import json
import logging
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import run_here
from trainer.report.trackers import Trackers

ROOT = Path(__file__).parents[2]
VERSIONS = {"wandb": "0.31.0", "mlflow": "3.17.2"}


class Kept:
    """A service that takes everything, or fails, or hangs."""

    def __init__(self, *, fails: bool = False, hangs: threading.Event | None = None) -> None:
        self.got: list[tuple[int, dict[str, float]]] = []
        self.closed = False
        self._fails, self._hangs = fails, hangs

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        if self._hangs is not None:
            self._hangs.wait(60)
        if self._fails:
            raise RuntimeError("the service\nsays no")
        self.got.append((step, dict(numbers)))

    def close(self) -> None:
        self.closed = True


def test_each_record_reaches_each_service_and_one_that_fails_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, bad = Kept(), Kept(fails=True)

    def absent() -> Kept:
        raise ImportError("no module")

    openers = {"bad": lambda: bad, "good": lambda: good, "absent": absent}
    with caplog.at_level(logging.WARNING), Trackers(openers) as trackers:
        for step in range(50):
            trackers.record({"train/loss": 1 / (step + 1)}, step)
    assert [step for step, _ in good.got] == list(range(50))
    assert good.closed
    assert sorted(record.message for record in caplog.records) == [
        "absent is not installed: nothing is sent to it (pip install absent)",
        "bad: nothing more is sent to it: the service says no",
    ]


def test_a_service_that_hangs_delays_neither_steps_nor_the_end(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()
    trackers = Trackers({"slow": lambda: Kept(hangs=release)})
    trackers.__enter__()
    began = time.perf_counter()
    for step in range(2000):
        trackers.record({"train/loss": 0.5}, step)
    assert time.perf_counter() - began < 2
    with caplog.at_level(logging.WARNING):
        trackers.close(within_s=0.5)
    release.set()
    assert time.perf_counter() - began < 10
    assert "did not take the last records in 0.5 s" in caplog.text
    assert "records were not sent to trackers" in caplog.text


def test_a_run_with_services_that_are_not_installed_finishes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_dataset(tmp_path / "source", num_dense=3, num_sparse=4)
    with caplog.at_level(logging.WARNING):
        outcome = run_here(
            tmp_path / "source", tmp_path / "run", wandb_project="cloudrec", mlflow_uri="http://127.0.0.1:9"
        )
    assert outcome.summary["status"] == "finished"
    assert "wandb is not installed" in caplog.text
    assert "mlflow is not installed" in caplog.text


def test_an_address_with_a_password_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="mlflow_uri"):
        run_here(None, tmp_path, mlflow_uri="https://me:secret@mlflow.example.com")


def _python(package: str) -> str:
    """A Python with the real package, in a separate environment; skip where it cannot be installed."""
    home = Path(sys.prefix) / f"{package}-{VERSIONS[package]}"
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            venv.create(home, with_pip=True, clear=True)
            words = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            words.append(f"{package}=={VERSIONS[package]}")
            done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode:
                pytest.skip(f"{package} cannot be installed here: {done.stderr.strip()[-200:]}")
            (home / "complete").touch()
    return str(home / "bin" / "python")


# The module needs nothing of torch, so that it runs where only the service's package is.
_PROGRAM = """
import json, logging, sys
from types import SimpleNamespace
from trainer.report.trackers import trackers_of
logging.basicConfig(level=logging.WARNING)
config = SimpleNamespace(**json.loads(sys.argv[1]))
for attempt in range(2):
    with trackers_of(config) as trackers:
        for step in range(3):
            done = 3 * attempt + step
            trackers.record({"train/loss": 1 / (1 + done), "eval/auc": 0.75}, done)
"""


def _log(package: str, output: Path, **given: Any) -> str:
    fixed = {"output_dir": str(output), "wandb_project": None, "mlflow_uri": None, "mlflow_experiment": "e"}
    words = [_python(package), "-c", _PROGRAM, json.dumps(fixed | given)]
    variables = {
        "PYTHONPATH": str(ROOT),
        "WANDB_MODE": "offline",
        "CLOUDREC_RUN": "dlrm-1",
        "HOME": str(output),
    }
    done = subprocess.run(
        words, capture_output=True, text=True, env=variables, cwd=output, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_real_wandb_keeps_a_run_offline(tmp_path: Path) -> None:
    warnings = _log("wandb", tmp_path, wandb_project="cloudrec")
    assert "nothing" not in warnings, warnings
    files = sorted(tmp_path.glob("wandb/offline-run-*-dlrm-1/run-dlrm-1.wandb"))
    assert files, list(tmp_path.rglob("*"))
    data = b"".join(path.read_bytes() for path in files)
    assert b"train/loss" in data
    assert b"eval/auc" in data


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_real_mlflow_has_one_run_over_restarts(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    warnings = _log("mlflow", tmp_path, mlflow_uri=uri)
    assert "nothing" not in warnings, warnings
    program = (
        "import json, sys; from mlflow.tracking import MlflowClient as C; c = C(tracking_uri=sys.argv[1]);"
        "runs = c.search_runs([c.get_experiment_by_name('e').experiment_id]);"
        "print(json.dumps([[r.info.run_name, r.info.status,"
        " [[m.step, m.value] for m in c.get_metric_history(r.info.run_id, 'train/loss')]] for r in runs]))"
    )
    done = subprocess.run(
        [_python("mlflow"), "-c", program, uri], capture_output=True, text=True, timeout=300, check=True
    )
    ((name, status, history),) = json.loads(done.stdout.splitlines()[-1])
    assert (name, status) == ("dlrm-1", "FINISHED")
    assert [step for step, _ in history] == list(range(6))
    assert [value for _, value in history] == pytest.approx([1 / (1 + step) for step in range(6)])
