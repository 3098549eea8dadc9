"""What `cloudrec plan` predicts for this machine beside what `python -m trainer` then does, run by run.

    python -m benchmarks.plan_accuracy [--write] [--results FOLDER] [--only NUMBER ...] [--keep]

`cloudrec plan --calibrate` measures the machine first. None of the runs has sizes that it measures. Samples/s
are the trainer's own, by its median line after the warm-up. Memory is the largest peak of the resident memory
of a rank's process, in total: libraries, tables, and all that a run does until its last checkpoint and
evaluation. FOLDER keeps what was measured as JSON, so that constants can be fitted again: with --keep, its
calibration is used and nothing is measured that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine import describe_machine, today

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).parent / "results"
MADE_UP = "trainer.data.formats.synthetic:made_up"
_LINES, _WARM_LINES = 10, 2
_RUN_S = 6.0  # of steps
_POLL_S = 0.05
_LIMIT_S = 240.0
_BAG_SAMPLES = 32_768  # mapped files count as resident memory, and the plan does not count them


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run to predict and to measure."""

    rows: int
    dim: int
    batch: int
    bottom: str
    top: str
    tables: int = 26
    ranks: int = 1
    interaction: str = "dot"
    cross_rank: int = 128
    hotness: int = 1

    @property
    def label(self) -> str:
        """As the table has it."""
        return (
            f"{self.tables} x {self.rows:,} x {self.dim}, batch {self.batch:,}, {self.interaction}, "
            f"{self.hotness} ids, {self.bottom} and {self.top}"
        )

    @property
    def settings(self) -> list[str]:
        """Flags of the trainer that the plan takes, too."""
        values = {
            "num_embeddings_per_feature": ",".join([str(self.rows)] * self.tables),
            "embedding_dim": self.dim,
            "batch_size": self.batch,
            "dense_arch_layer_sizes": self.bottom,
            "over_arch_layer_sizes": self.top,
            "interaction": self.interaction,
            "dcn_low_rank_dim": self.cross_rank,
        }
        return [word for name, value in values.items() for word in (f"--{name}", str(value))]


RUNS = (
    Run(rows=60_000, dim=64, batch=1024, bottom="512,256,64", top="512,256,1"),
    Run(rows=60_000, dim=64, batch=1024, bottom="512,256,64", top="512,256,1", ranks=2),
    Run(rows=1_000, dim=32, batch=4096, bottom="128,32", top="256,128,1"),
    Run(rows=10_000, dim=128, batch=512, bottom="512,128", top="256,64,1", tables=12),
    Run(rows=120_000, dim=32, batch=1024, bottom="256,32", top="256,128,1", ranks=2),
    Run(rows=40_000, dim=64, batch=512, bottom="256,64", top="512,256,1", interaction="dcn"),
    Run(rows=40_000, dim=32, batch=1024, bottom="128,32", top="256,1", interaction="dcn", ranks=2),
    Run(rows=50_000, dim=32, batch=512, bottom="128,32", top="256,1", hotness=8),
    Run(rows=50_000, dim=64, batch=512, bottom="256,64", top="256,128,1", hotness=3, ranks=2),
    Run(rows=250_000, dim=16, batch=2048, bottom="64,16", top="128,64,1", tables=20),
    Run(rows=30_000, dim=64, batch=256, bottom="1024,256,64", top="1024,512,1", tables=16),
    Run(rows=20_000, dim=64, batch=2048, bottom="256,64", top="512,1", tables=10, interaction="dcn"),
)


def main(argv: Sequence[str] | None = None) -> None:
    """Predict, measure, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write results/plan-accuracy-DATE.md")
    parser.add_argument("--results", type=Path, help="keep what was measured here")
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER", help="these runs alone, from 1 on")
    parser.add_argument("--keep", action="store_true", help="use what --results has, and measure the rest")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        results = given.results or Path(folder) / "results"
        results.mkdir(parents=True, exist_ok=True)
        _calibrate(results, keep=given.keep)
        chosen = [RUNS[number - 1] for number in given.only] if given.only else list(RUNS)
        found = [_compare(each, results, Path(folder), keep=given.keep) for each in chosen]
    table = format_table(found)
    print(table)
    if given.write:
        (RESULTS / f"plan-accuracy-{today()}.md").write_text(table + "\n", encoding="utf-8")


def format_table(found: Sequence[dict[str, Any]]) -> str:
    """A Markdown page: each run, the worst, what was done, and the machine."""
    lines = [
        "# What `cloudrec plan` predicts for a CPU",
        "",
        (
            "`cloudrec plan --calibrate` measured the machine, but none of these runs. "
            f"Samples/s: the median of {_LINES - _WARM_LINES} lines that the trainer writes itself, after "
            f"{_WARM_LINES} of warm-up. Memory: the largest peak of a rank's resident memory in total, "
            "libraries and the last checkpoint and evaluation included."
        ),
        "",
        (
            "| Run | Ranks | Predicted samples/s | Measured | Predicted / measured | Predicted GiB a rank "
            "| Measured | Predicted / measured |"
        ),
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in found:
        speed, memory = ratios(each)
        lines.append(
            f"| {each['label']} | {each['ranks']} | {each['predicted_samples_per_s']:,.0f} "
            f"| {each['samples_per_s']:,.0f} | {speed:.2f} | {each['predicted_gib']:.2f} "
            f"| {each['peak_gib']:.2f} | {memory:.2f} |"
        )
    speeds = [ratios(each)[0] for each in found]
    memories = [ratios(each)[1] for each in found]
    lines += [
        "",
        (
            f"Worst: samples/s {_worst(speeds):.2f}, memory {_worst(memories):.2f}. Within 15 %: "
            f"{sum(0.85 <= each <= 1.15 for each in speeds)} of {len(speeds)}; memory within 10 %: "
            f"{sum(0.9 <= each <= 1.1 for each in memories)} of {len(memories)}."
        ),
        "",
        f"Measured {today()}. {describe_machine()}",
    ]
    return "\n".join(lines)


def ratios(found: dict[str, Any]) -> tuple[float, float]:
    """Predicted / measured of samples/s and of memory."""
    return (
        found["predicted_samples_per_s"] / found["samples_per_s"],
        found["predicted_gib"] / found["peak_gib"],
    )


def _worst(values: Sequence[float]) -> float:
    return max(values, key=lambda value: abs(value - 1.0))


def _home(results: Path) -> dict[str, str]:
    return {**os.environ, "CLOUDREC_HOME": str((results / "home").resolve())}


def _calibrate(results: Path, *, keep: bool) -> None:
    if keep and (results / "home" / "calibration.json").exists():
        return
    started = time.perf_counter()
    _plan(results, RUNS[0], "--calibrate")
    print(f"calibrated in {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)


def _plan(results: Path, run: Run, *flags: str) -> list[dict[str, Any]]:
    command = [
        *(sys.executable, "-m", "cloudrec", "plan", "--provider", "local", "--samples", "1000000"),
        *("--ids", str(run.tables * run.hotness), "-o", "json", *flags, "--", *run.settings),
    ]
    done = subprocess.run(
        command, env=_home(results), capture_output=True, text=True, check=False, cwd=results
    )
    if done.returncode:
        raise SystemExit(f"error: the plan failed: {done.stderr}")
    offers: list[dict[str, Any]] = json.loads(done.stdout)["offers"]
    return offers


def _compare(run: Run, results: Path, folder: Path, *, keep: bool) -> dict[str, Any]:
    (offer,) = [each for each in _plan(results, run) if each["ranks"] == run.ranks]
    name = f"run-{RUNS.index(run) + 1}.json"
    if keep and (results / name).exists():
        measured = json.loads((results / name).read_text(encoding="utf-8"))
    else:
        measured = _measure(run, folder, offer["samples_per_s"])
    found = {
        **asdict(run),
        "label": run.label,
        **measured,
        "predicted_samples_per_s": offer["samples_per_s"],
        "predicted_gib": offer["memory_gib"]["need"],
        "parts_s": offer["step_s"],
        "memory_gib": offer["memory_gib"],
    }
    (results / name).write_text(json.dumps(found, indent=1), encoding="utf-8")
    speed, memory = ratios(found)
    print(f"{run.label}, {run.ranks} ranks: {speed:.2f}, memory {memory:.2f}", file=sys.stderr, flush=True)
    return found


def _measure(run: Run, folder: Path, expected: float) -> dict[str, Any]:
    """Run the trainer for some seconds, and return its own figures and its ranks' peak memory."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        interval = max(round(_RUN_S * expected / run.batch / run.ranks / _LINES), 2)
        words = [*run.settings, "--output_dir", f"{place}/out", "--log_interval", str(interval)]
        words += ["--num_iterations", str(interval * _LINES), "--device", "cpu", "--model_digest", "false"]
        if run.hotness == 1:
            words += ["--dataset", MADE_UP]
        else:
            from trainer.commands.calibrate import write_bags  # noqa: PLC0415 - of the trainer

            steps = interval * _LINES * run.batch * run.ranks
            write_bags(Path(place) / "data", run.rows, run.hotness, min(steps, _BAG_SAMPLES))
            epochs = -(-steps // min(steps, _BAG_SAMPLES)) + 1
            words += ["--dataset_path", f"{place}/data", "--num_epochs", str(epochs)]
        command = [sys.executable]
        if run.ranks > 1:
            command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(run.ranks)]
        peaks = _peaks_of([*command, "-m", "trainer", *words], run.ranks)
        text = (Path(place) / "out" / "metrics.jsonl").read_text(encoding="utf-8")
    lines = [line for line in map(json.loads, text.splitlines()) if line["kind"] == "train"]
    speeds = [line["samples_per_s"] for line in lines]
    return {
        "samples_per_s": statistics.median(speeds[_WARM_LINES:]),
        "lines": speeds,
        "steps_a_line": interval,
        "peak_gib": max(peaks) / 2**30,
        "peaks": peaks,
    }


def _peaks_of(command: Sequence[str], ranks: int) -> list[int]:
    """Run a command to its end; return the peak of the resident memory of each rank's process."""
    threads = max(1, (os.cpu_count() or 1) // ranks)
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        peaks: dict[int, int] = {}
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, ranks, peaks, ended))
        watcher.start()
        try:
            code = process.wait(timeout=_LIMIT_S)
        finally:
            process.kill()
            ended.set()
            watcher.join()
        if code:
            errors.seek(0)
            raise SystemExit(f"error: the run failed: {errors.read().decode()[-2000:]}")
    return sorted(peaks.values())[-ranks:]


def _watch(pid: int, ranks: int, peaks: dict[int, int], ended: threading.Event) -> None:
    while not ended.wait(_POLL_S):
        for each in [pid] if ranks == 1 else _children(pid):
            peak = _peak(each)
            if peak:
                peaks[each] = peak


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(each) for each in text.split()]


def _peak(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) * 1024 if found else 0


if __name__ == "__main__":
    main()
