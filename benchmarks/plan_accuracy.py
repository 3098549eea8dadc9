"""What `cloudrec plan` predicts for this machine beside what `python -m trainer` then does, run by run.

    python -m benchmarks.plan_accuracy [--write] [--results FOLDER] [--only NUMBER ...] [--repeats N] [--keep]

In each of N turns, all runs train, and `cloudrec plan --calibrate` runs before the first one and after every
third one; no run has sizes that the calibration measures. The speed of a virtual machine changes from minute
to minute. So a run is compared with the mean of what follows from the last calibration before it and from the
next one after it, and the median of the turns counts. Other virtual machines on the same processor slow this
one down for minutes, so products, rows of memory and of a cache, and small operations are timed before and
after each run and each calibration. One during which any of these was slower than it can be is repeated,
whatever it measured; the table counts these.

Samples/s are the trainer's own, by the median line after the warm-up. Memory is the largest peak of the
resident memory of a rank's process, in total: libraries, tables, and all that a run does until its last
checkpoint and evaluation. FOLDER keeps what was measured as JSON, so that constants can be fitted again: with
--keep, its calibrations are used and nothing is measured that is there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine import describe_machine, today

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESULTS = Path(__file__).parent / "results"
MADE_UP = "trainer.data.formats.synthetic:made_up"
_LINES, _WARM_LINES = 14, 4
_REPEATS = 5
_CLOSE, _CLOSE_MEMORY = 0.15, 0.1
_RUN_S = 10.0  # of steps
_GROUP = 3  # runs between two calibrations
_POLL_S = 0.05
_LIMIT_S = 240.0
_STEADY = 0.1  # by which the reference may be slower than in the machine's best moments
_MOST_TRIES = 6  # of a run or a calibration; the last one counts in any case
_PAUSE_S = 10.0
_PACES = 12  # of which the best moments are known
_BAG_SAMPLES = 32_768  # mapped files count as resident memory, and the plan does not count them


class Pace:
    """How fast the machine is now, by works that are the same each time.

    Each has its own limit, because other virtual machines slow down one of them and not the others: they
    share the memory and its caches with this one, and not its processors.
    """

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 - the plan's own process needs none
        from torch.nn.functional import embedding_bag  # noqa: PLC0415

        left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
        far, near = torch.randn(2_000_000, 32), torch.randn(60_000, 32)  # 256 MB, in no cache; 8 MB
        far_ids, near_ids = (torch.randint(len(rows), (65_536, 32)) for rows in (far, near))
        small = torch.randn(64, 64)
        self._works: tuple[Callable[[], object], ...] = (
            lambda: [left @ right for _ in range(2)],
            partial(embedding_bag, far_ids, far, mode="sum"),
            partial(embedding_bag, near_ids, near, mode="sum"),
            lambda: [small.relu() for _ in range(10_000)],
        )
        self._timed()
        known = [sorted(each) for each in zip(*(self._timed() for _ in range(_PACES)), strict=True)]
        self.best_s = [each[_PACES // 4] for each in known]
        self.repeated = self.disturbed = 0

    def steadily(self, step: Callable[[], None]) -> None:
        """Do a step; again if the machine was disturbed meanwhile."""
        for _ in range(_MOST_TRIES):
            before = self._slowest()
            step()
            if max(before, self._slowest()) <= 1 + _STEADY:
                return
            self.repeated += 1
            time.sleep(_PAUSE_S)
        self.disturbed += 1

    def _slowest(self) -> float:
        """Return the time of the work that is slowed down most, as a multiple of its best one."""
        return max(now / best for now, best in zip(self._timed(), self.best_s, strict=True))

    def _timed(self) -> list[float]:
        """Return the seconds of each work; the median of some."""
        return [statistics.median(_seconds(work) for _ in range(7)) for work in self._works]


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


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
    parser.add_argument("--repeats", type=int, default=_REPEATS, metavar="N", help=f"turns [{_REPEATS}]")
    parser.add_argument("--keep", action="store_true", help="use what --results has, and measure the rest")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        results = given.results or Path(folder) / "results"
        results.mkdir(parents=True, exist_ok=True)
        chosen = [RUNS[number - 1] for number in given.only] if given.only else list(RUNS)
        groups = [chosen[at : at + _GROUP] for at in range(0, len(chosen), _GROUP)]
        turns = range(1, given.repeats + 1)
        folders = [
            [results / f"turn-{turn}-{number}" for number in range(1, len(groups) + 1)] for turn in turns
        ]
        pace = Pace()
        for turn in folders:
            for part, runs in zip(turn, groups, strict=True):
                _calibrate(part, pace, keep=given.keep)
                for each in runs:
                    if not (given.keep and _record(part, each).exists()):
                        offer = _predict(each, part)
                        pace.steadily(partial(_measure, each, Path(folder), _record(part, each), offer))
        _calibrate(results / "after", pace, keep=given.keep)
        after = dict(pairwise([*chain.from_iterable(folders), results / "after"]))
        found = [
            _compare(run, parts, [after[part] for part in parts])
            for parts, runs in zip(zip(*folders, strict=True), groups, strict=True)
            for run in runs
        ]
    table = format_table(found, pace)
    print(table)
    if given.write:
        (RESULTS / f"plan-accuracy-{today()}.md").write_text(table + "\n", encoding="utf-8")


def format_table(found: Sequence[dict[str, Any]], pace: Pace) -> str:
    """A Markdown page: each run, the worst, what was done, and the machine."""
    lines = [
        "# What `cloudrec plan` predicts for a CPU",
        "",
        (
            f"In each of {found[0]['turns']} turns, all runs trained, each {_GROUP} of them between two "
            "calls of `cloudrec plan --calibrate`, which measures none of them. A prediction is the mean of "
            "what follows from both, because the machine's speed changes. Predicted / measured: the median "
            "of the turns, and the lowest and highest. Samples/s: the median of "
            f"{_LINES - _WARM_LINES} lines that the trainer writes itself, after {_WARM_LINES} of warm-up. "
            "Memory: the largest peak of the resident memory of a rank, libraries and the last checkpoint "
            "and evaluation included; it differs from turn to turn, too. What was measured while the "
            f"machine was more than {_STEADY:.0%} slower than in its best moments, by any of four works "
            f"that are the same each time, was measured again: {pace.repeated} times. {pace.disturbed} "
            f"times it was still slower at the try number {_MOST_TRIES}, which counts."
        ),
        "",
        (
            "| Run | Ranks | Predicted samples/s | Measured | Predicted / measured | Lowest and highest "
            "| Predicted GiB a rank | Measured | Predicted / measured | Lowest and highest |"
        ),
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in found:
        low, high = min(each["speed_ratios"]), max(each["speed_ratios"])
        least, most = min(each["memory_ratios"]), max(each["memory_ratios"])
        lines.append(
            f"| {each['label']} | {each['ranks']} | {each['predicted_samples_per_s']:,.0f} "
            f"| {each['samples_per_s']:,.0f} | {each['speed_ratio']:.2f} | {low:.2f} to {high:.2f} "
            f"| {each['predicted_gib']:.2f} | {each['peak_gib']:.2f} | {each['memory_ratio']:.2f} "
            f"| {least:.2f} to {most:.2f} |"
        )
    lines += [
        "",
        (
            f"Samples/s: {_summary([each['speed_ratio'] for each in found], _CLOSE)}. "
            f"Memory: {_summary([each['memory_ratio'] for each in found], _CLOSE_MEMORY)}."
        ),
        "",
        f"Measured {today()}. {describe_machine()}",
    ]
    return "\n".join(lines)


def _summary(values: Sequence[float], close: float) -> str:
    within = sum(abs(each - 1.0) <= close for each in values)
    worst = max(values, key=lambda value: abs(value - 1.0))
    return f"within {close:.0%} {within} of {len(values)}, worst {worst:.2f}"


def _calibrate(part: Path, pace: Pace, *, keep: bool) -> None:
    if keep and (part / "home" / "calibration.json").exists():
        return
    part.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    pace.steadily(lambda: _calibrated(part))
    print(f"calibrated in {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)


def _calibrated(turn: Path) -> None:
    _plan(turn, RUNS[0], "--calibrate")


def _plan(turn: Path, run: Run, *flags: str) -> list[dict[str, Any]]:
    command = [
        *(sys.executable, "-m", "cloudrec", "plan", "--provider", "local", "--samples", "1000000"),
        *("--ids", str(run.tables * run.hotness), "-o", "json", *flags, "--", *run.settings),
    ]
    environment = {**os.environ, "CLOUDREC_HOME": str((turn / "home").resolve())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=turn)
    if done.returncode:
        raise SystemExit(f"error: the plan failed: {done.stderr}")
    offers: list[dict[str, Any]] = json.loads(done.stdout)["offers"]
    return offers


def _record(turn: Path, run: Run) -> Path:
    return turn / f"run-{RUNS.index(run) + 1}.json"


def _predict(run: Run, turn: Path) -> dict[str, Any]:
    (offer,) = [each for each in _plan(turn, run) if each["ranks"] == run.ranks]
    return offer


def _compare(run: Run, turns: Sequence[Path], following: Sequence[Path]) -> dict[str, Any]:
    """Compare a run of each turn with the predictions by the calibrations before and after it."""
    offers = [_predict(run, turn) for turn in turns]
    later = [_predict(run, turn) for turn in following]
    measured = [json.loads(_record(turn, run).read_text(encoding="utf-8")) for turn in turns]
    predicted = [
        math.sqrt(a["samples_per_s"] * b["samples_per_s"]) for a, b in zip(offers, later, strict=True)
    ]
    speeds = [statistics.median(each["lines"][_WARM_LINES:]) for each in measured]
    needed = [each["memory_gib"]["need"] for each in offers]
    peaks = [each["peak_gib"] for each in measured]
    memory_ratios = [a / b for a, b in zip(needed, peaks, strict=True)]
    ratios = [a / b for a, b in zip(predicted, speeds, strict=True)]
    return {
        **asdict(run),
        "label": run.label,
        "turns": len(turns),
        "predicted_samples_per_s": statistics.median(predicted),
        "samples_per_s": statistics.median(speeds),
        "speed_ratios": ratios,
        "speed_ratio": statistics.median(ratios),
        "predicted_gib": statistics.median(needed),
        "peak_gib": statistics.median(peaks),
        "memory_ratios": memory_ratios,
        "memory_ratio": statistics.median(memory_ratios),
    }


def _measure(run: Run, folder: Path, record: Path, offer: dict[str, Any]) -> None:
    """Run the trainer for some seconds; write its own figures and its ranks' peak memory to the record."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        interval = max(round(_RUN_S * offer["samples_per_s"] / run.batch / run.ranks / _LINES), 2)
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
    found = {
        "lines": [line["samples_per_s"] for line in lines],
        "steps_a_line": interval,
        "peak_gib": max(peaks) / 2**30,
        "peaks": peaks,
    }
    record.write_text(json.dumps(found, indent=1), encoding="utf-8")
    median = statistics.median(found["lines"][_WARM_LINES:])
    print(
        f"{record.parent.name}, {record.stem}: {offer['samples_per_s'] / median:.2f}",
        file=sys.stderr,
        flush=True,
    )


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
