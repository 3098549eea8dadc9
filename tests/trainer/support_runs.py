"""Whole runs of `python -m trainer`: in this process as a world of one, or in separate processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer.base.arguments import make_config
from trainer.loop.loop import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = {  # a model that trains in milliseconds
    "embedding_dim": 8,
    "dense_arch_layer_sizes": (8,),
    "over_arch_layer_sizes": (8, 1),
    "batch_size": 25,
    "threads": 1,
    "log_interval": 5,
    "learning_rate": 0.02,
    "dense_learning_rate": 0.002,
}
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The files of a finished run."""

    code: int
    directory: Path

    @property
    def summary(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads((self.directory / "summary.json").read_text())
        return values

    def lines(self, kind: str) -> list[dict[str, Any]]:
        text = (self.directory / "metrics.jsonl").read_text()
        return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


def run_here(dataset: Path | None, output: Path, /, **settings: Any) -> Outcome:
    """Run alone, in this process."""
    path = {} if dataset is None else {"dataset_path": str(dataset)}
    config = make_config({**SMALL, **settings, **path, "output_dir": str(output)})
    return Outcome(run(config), output)


def command(dataset: Path | None, output: Path, /, *, ranks: int = 1, **settings: Any) -> list[str]:
    """The command line of a run, under torch's elastic agent if it has several ranks."""
    path = {} if dataset is None else {"dataset_path": dataset}
    values = {**SMALL, **settings, **path, "output_dir": output}
    flags = [word for name, value in values.items() for word in (f"--{name}", _spell(value))]
    agent = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    return [sys.executable, *agent, "-m", "trainer", *flags]


def start(words: list[str], log: Path, **variables: str) -> subprocess.Popen[bytes]:
    """Start in its own process group, so that all of it can be ended."""
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **variables}
    with log.open("ab") as output:
        return subprocess.Popen(
            words, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_until(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait until a condition holds, while the process lives and until a time limit."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert process.poll() is None, "the process ended first"
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def _spell(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
