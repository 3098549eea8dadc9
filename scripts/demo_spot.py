"""`make demo-spot`: how a run behaves when its machines are lost, through the commands that a user types.

One run is not interrupted. A process of a second one is killed with SIGKILL during training, and the run
resumes by itself. A third one is stopped and continues with one process instead of two. All must have seen
the same samples, and the first two must end with the same model, bit for bit; a last table
compares their digests, AUC and time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scripts.demo import Shell

ROWS = 100_000
PROCESSES = 2
BATCH = 256  # a process
EPOCHS = 4
DISTURBED_AT = 0.4  # of the steps
TRAINER_FLAGS = (
    *("--deterministic", "--num_epochs", str(EPOCHS), "--batch_size", str(BATCH), "--embedding_dim", "16"),
    *("--dense_arch_layer_sizes", "64,16", "--over_arch_layer_sizes", "64,32,1"),
    *("--checkpoint_interval", "100", "--log_interval", "20"),
)
MIN_FREQUENCY = 500
PATIENCE_S = 900.0  # only a hang takes so long
_POLL_S = 0.3
_LABEL, _COLUMN = 16, 22  # characters
_SHOWN = 16  # of a digest

WHOLE, KILLED, SHRUNK = "undisturbed", "killed", "shrunk"


def main() -> int:
    """Run the demo; 0 when every digest that must be equal is."""
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that `down` ends all
    with tempfile.TemporaryDirectory(prefix="cloudrec-demo-") as name:
        shell = Shell(Path(name))
        try:
            prepare(shell)
            launch(shell, WHOLE)
            kill_a_process(shell)
            stop_and_shrink(shell)
            summaries = {run: summary_of(shell, run) for run in (WHOLE, KILLED, SHRUNK)}
        finally:
            shell.run("down", "--yes")
    print_table(summaries)
    return judge(summaries, minutes=(time.monotonic() - began) / 60)


def prepare(shell: Shell) -> None:
    """Bring up this machine as a cluster, and make data for it."""
    shell.run("up", "local")
    shell.run("data", "synth", "data/raw", "--rows", str(ROWS), "--seed", "1")
    shell.run("data", "prepare", "data/raw", "data/prepared", "--min-frequency", str(MIN_FREQUENCY))


def launch(shell: Shell, run: str, *options: str) -> None:
    """Launch one of the runs: they differ by name alone."""
    where = ("--name", run, "--dataset", "data/prepared", "--nproc-per-node", str(PROCESSES))
    shell.run("train", *where, *options, "--", *TRAINER_FLAGS)


def kill_a_process(shell: Shell) -> None:
    """Launch a run, kill one rank's process during training, and follow the run to its end."""
    launch(shell, KILLED, "--detach")
    step = wait_for_middle(shell, KILLED)
    victim = rank_process(shell, KILLED, rank=PROCESSES - 1)
    print(f"\nstep {step}: rank {PROCESSES - 1} is process {victim}\n$ kill -9 {victim}", flush=True)
    os.kill(victim, signal.SIGKILL)
    watch(shell, KILLED)
    shell.run("status", KILLED)


def stop_and_shrink(shell: Shell) -> None:
    """Launch a run, stop it half-way, and continue with a single process."""
    launch(shell, SHRUNK, "--detach")
    wait_for_middle(shell, SHRUNK)
    shell.run("stop", SHRUNK)
    shell.run("train", "--resume", SHRUNK, "--nproc-per-node", "1")


def view_of(shell: Shell, run: str) -> dict[str, Any]:
    """The run as `cloudrec status` shows it."""
    view: dict[str, Any] = shell.ask("status", run)["runs"][0]
    return view


def wait_for_middle(shell: Shell, run: str) -> int:
    """Wait until a run has a checkpoint and some of its way behind it; its step. RuntimeError if it ends."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        view = view_of(shell, run)
        if view["state"] not in {"PENDING", "RUNNING"} or time.monotonic() > give_up:
            raise RuntimeError(f"the run {run} is {view['state']} before it was disturbed: {view['cause']}")
        step = int(view["step"] or 0)
        if view["checkpoint"] and step >= DISTURBED_AT * view["total_steps"]:
            return step
        time.sleep(_POLL_S)


def rank_process(shell: Shell, run: str, *, rank: int) -> int:
    """The process of a rank's trainer, from the run's ledger."""
    ledger = (shell.home / "runs" / run / "events.jsonl").read_text(encoding="utf-8")
    events = [json.loads(line) for line in ledger.splitlines()]
    return int(
        [event for event in events if event["event"] == "rank_started" and event["rank"] == rank][-1]["pid"]
    )


def watch(shell: Shell, run: str) -> None:
    """Print every change of a run's state until it ends."""
    began, told = time.monotonic(), ""
    while told not in {"SUCCEEDED", "FAILED", "INTERRUPTED"}:
        view = view_of(shell, run)
        after = time.monotonic() - began
        if after > PATIENCE_S:
            raise RuntimeError(f"the run {run} has not ended after {after:.0f} s: it is {view['state']}")
        if view["state"] != told:
            told = view["state"]
            cause = f" ({view['cause']})" if view["cause"] else ""
            restarts = f"{view['restarts']} restarts{cause}"
            print(f"{after:5.1f} s after the kill: {told}, step {view['step']}, {restarts}", flush=True)
        time.sleep(_POLL_S)


def summary_of(shell: Shell, run: str) -> dict[str, Any]:
    """The trainer's summary of a finished run."""
    text = (shell.home / "runs" / run / "summary.json").read_text(encoding="utf-8")
    summary: dict[str, Any] = json.loads(text)
    return summary


def print_table(summaries: dict[str, dict[str, Any]]) -> None:
    """Print the runs in a table, one column each."""
    columns = list(summaries.values())
    titles = ("undisturbed", "rank killed", f"stopped, {PROCESSES} -> 1")
    print("\n" + _line("", titles))
    print(_line("processes", [str(each["world_size"]) for each in columns]))
    print(_line("started again", [f"{each['restarts']:,}" for each in columns]))
    for name in ("samples_seen", "step"):
        print(_line(name, [f"{each[name]:,}" for each in columns]))
    for name in ("samples_digest", "model_digest"):
        print(_line(name, [str(each[name])[:_SHOWN] for each in columns]))
    for name in ("auc", "logloss"):
        print(_line(name, [f"{each[name]:.8f}" for each in columns]))
    print(_line("goodput", [f"{each['goodput']:.0%}" for each in columns]))
    for part in columns[0]["goodput_parts"]:
        label = "  " + part.removesuffix("_s").replace("_", " ")
        print(_line(label, [f"{each['goodput_parts'][part]:.1f} s" for each in columns]))


def judge(summaries: dict[str, dict[str, Any]], *, minutes: float) -> int:
    """Print what had to be equal, and whether it is; return 1 if something differs."""
    whole, killed, shrunk = summaries[WHOLE], summaries[KILLED], summaries[SHRUNK]
    demands = {
        "the killed run was started again by itself": killed["restarts"] > 0,
        "the killed run saw every sample as often as the undisturbed one": _same(whole, killed, "samples"),
        "the killed run's model is the undisturbed one's, bit for bit": _same(whole, killed, "model"),
        "the stopped run continued with one process": shrunk["world_size"] == 1,
        "the stopped run saw every sample as often as the undisturbed one": _same(whole, shrunk, "samples"),
        "all three took equally many steps": whole["step"] == killed["step"] == shrunk["step"],
    }
    print()
    for demand, met in demands.items():
        print(f"{'yes' if met else 'NO ':3} {demand}")
    difference = abs(shrunk["auc"] - whole["auc"])
    print(
        "one process adds in another order than two, so the stopped run's model differs by rounding: its AUC "
        f"by {difference:.1e}\n"
        f"{minutes:.1f} minutes in all"
    )
    kept = all(demands.values())
    print("nothing was lost and nothing repeated" if kept else "something was NOT as it must be")
    return 0 if kept else 1


def _same(one: dict[str, Any], other: dict[str, Any], what: str) -> bool:
    digest = f"{what}_digest"
    return one[digest] is not None and one[digest] == other[digest]


def _line(label: str, values: list[str] | tuple[str, ...]) -> str:
    return f"{label:{_LABEL}}" + "".join(f"{value:>{_COLUMN}}" for value in values)


if __name__ == "__main__":
    sys.exit(main())
