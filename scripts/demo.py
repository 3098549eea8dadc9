"""`make demo`: the main job, end to end, through the commands that a user types.

A cluster comes up, Criteo-format data is made and prepared, a sharded DLRM is trained by two processes,
stopped half-way, resumed, reported, and everything is taken down again. The best AUC that any model can
reach on this data is known, so the demo ends with how much of the way from the best linear model to it the
training has gone. The demo fails when that is less than it promises, or when a resource is left. It reports
time and memory, which depend on the machine, and never fails on them.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

ROWS = 2_000_000
PROCESSES = 2
PROMISED_GAP = 0.90  # of the way from the best linear model's AUC to the teacher's own
STOP_AFTER = 0.2  # of the steps: on a busy machine the stop arrives long after the step that triggers it
BATCH = 1024  # the trainer's default, as all other settings of the model
TRAINER_FLAGS = ("--checkpoint_interval", "200")
_GIB = 1 << 30
_POLL_S = 0.5


class PeakMemory:
    """Samples the resident memory of every process of this demo, detached ones too, and keeps the peak."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.peak_bytes = 0
        self._thread.start()

    def stop(self) -> float:
        """Return the peak in GiB: resident sets added up, so that shared pages count more than once."""
        self._over.set()
        self._thread.join()
        return self.peak_bytes / _GIB

    def _sample(self) -> None:
        while not self._over.wait(_POLL_S):
            self.peak_bytes = max(self.peak_bytes, sum(map(self._resident, psutil.process_iter())))

    def _resident(self, process: psutil.Process) -> int:
        try:
            return process.memory_info().rss if process.environ().get("CLOUDREC_HOME") == self._home else 0
        except (psutil.Error, OSError):
            return 0  # it ended meanwhile, or is another user's


class Shell:
    """Runs cloudrec's commands in their own folder, showing each as a user would type it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.home = folder / "home"
        self._program = Path(sys.executable).with_name("cloudrec")
        self._environment = {**os.environ, "CLOUDREC_HOME": str(self.home)}

    def run(self, *arguments: str, code: int = 0) -> None:
        """Run a command, its output on this terminal; RuntimeError when it ends with another exit code."""
        print(f"\n$ cloudrec {shlex.join(arguments)}", flush=True)
        done = subprocess.run(
            [self._program, *arguments], cwd=self._folder, env=self._environment, check=False
        )
        if done.returncode != code:
            raise RuntimeError(f"cloudrec {arguments[0]} ended with exit code {done.returncode}")

    def ask(self, *arguments: str) -> dict[str, Any]:
        """Run a command with -o json and return its document."""
        done = subprocess.run(
            [self._program, *arguments, "-o", "json"],
            cwd=self._folder,
            env=self._environment,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        document: dict[str, Any] = json.loads(done.stdout)
        return document


def train_stop_and_resume(shell: Shell, steps: int) -> None:
    """Launch the run, watch it, stop it half-way and resume it."""
    processes = ("--nproc-per-node", str(PROCESSES))
    shell.run(
        "train", "--name", "demo", "--dataset", "data/prepared", *processes, "--detach", "--", *TRAINER_FLAGS
    )
    while True:
        (run,) = shell.ask("status", "demo")["runs"]
        if run["state"] == "SUCCEEDED":
            print("\nthe run ended before it could be stopped, so no stop and no resume is shown", flush=True)
            return
        if run["state"] not in {"PENDING", "RUNNING"}:
            raise RuntimeError(f"the run is {run['state']} before it was stopped: {run['cause']}")
        if (run["step"] or 0) >= STOP_AFTER * steps:
            break
        time.sleep(_POLL_S)
    shell.run("status")
    shell.run("logs", "demo", "--tail", "5")
    shell.run("stop", "demo")
    shell.run("train", "--resume", "demo")


def main() -> int:
    """Run the demo; 0 when its results are right."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cloudrec-demo-") as name:
        folder = Path(name)
        shell = Shell(folder)
        memory = PeakMemory(shell.home)
        try:
            shell.run("up", "local")
            shell.run("data", "synth", "data/raw", "--rows", str(ROWS), "--seed", "1")
            shell.run("data", "prepare", "data/raw", "data/prepared")
            train_stop_and_resume(shell, ROWS // (PROCESSES * BATCH))
            report = Path("cloudrec-demo.html").absolute()
            shell.run("report", "demo", "--out", str(report), "--force")
            summary = json.loads((shell.home / "runs" / "demo" / "summary.json").read_text(encoding="utf-8"))
            known = json.loads((folder / "data" / "raw" / "synth.json").read_text(encoding="utf-8"))
        finally:
            shell.run("down", "--yes")
        left = shell.ask("leaks", "local")["resources"]
        peak_gib = memory.stop()
    return judge(summary, known, minutes=(time.monotonic() - began) / 60, peak_gib=peak_gib, left=len(left))


def judge(
    summary: dict[str, Any], known: dict[str, Any], *, minutes: float, peak_gib: float, left: int
) -> int:
    """Print what was reached; 1 when the AUC is below the promise or a resource is left.

    Args:
        summary: the run's summary.json.
        known: the data's synth.json, with the AUC of the best linear model and of the best possible one.
        minutes: wall time of the whole demo.
        peak_gib: peak of the resident memory of all processes.
        left: resources that `leaks` found after `down`.
    """
    linear, best, auc = known["linear_auc"], known["bayes_auc"], summary["auc"]
    gap = (auc - linear) / (best - linear)
    rows = summary["samples_seen"]
    print(
        f"\nAUC {auc:.4f}; best linear model {linear:.4f}, best possible {best:.4f}: "
        f"{gap:.1%} of the way (promised {PROMISED_GAP:.0%})\n"
        f"{rows:,} samples at {summary['samples_per_s']:,.0f} a second by {summary['world_size']} processes\n"
        f"{minutes:.1f} minutes in all, at most {peak_gib:.2f} GiB resident, {left} resources left"
    )
    right = gap >= PROMISED_GAP and left == 0
    print("the results are right" if right else "the results are WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
