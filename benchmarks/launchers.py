"""From `train` to the first step on each engine, beside plain torchrun's; and what the launcher adds.

    python -m benchmarks.launchers [--rounds 5] [--engine local --engine slurm ...] [--write]

Each engine is warm: the Kubernetes stand-in with the image on its nodes, a Ray cluster and a Slurm that are
idle. Every launch is a process of its own that looks whether the run can work, submits it and ends, and in
turn with each launch torchrun is started with the same trainer, two processes on one node, so that whatever
else this machine does disturbs both. The overhead is how much later than torchrun's the trainer's processes
begin; until the first step both do the same.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from benchmarks.machine import describe_machine, today
from cloudrec.launch.ledger import RunState
from cloudrec.launch.outputs import json_lines
from cloudrec.launch.runspec import default_trainer_command
from tests.conformance.support_launchers import ENGINES, Engine
from tests.trainer.support_dataset import write_dataset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LIMIT_S = 2.0
ROUNDS = 5
RESULTS = Path(__file__).parent / "results"
LAUNCH = """
import sys
from pathlib import Path
from cloudrec.launch import launcher
from cloudrec.launch.folder import RunFolder
run = RunFolder(path=Path(sys.argv[1]))
engine = launcher(run.spec().launcher)
engine.preflight(run.spec())
engine.submit(run)
"""
MODEL: dict[str, Any] = {
    "embedding_dim": 8,
    "dense_arch_layer_sizes": [8],
    "over_arch_layer_sizes": [8, 1],
    "global_batch_size": 50,
    "num_iterations": 4,
    "log_interval": 1,
    "threads": 1,
}


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds from the command: until rank 0's trainer has begun, and until its first step was done."""

    begun: float
    stepped: float


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """What was measured in turn on one engine.

    Attributes:
        ours: by the launcher.
        plain: by torchrun.
    """

    ours: list[Times] = field(default_factory=list)
    plain: list[Times] = field(default_factory=list)

    @property
    def overheads(self) -> list[float]:
        """How much later the trainer began than by torchrun just before."""
        return [ours.begun - plain.begun for ours, plain in zip(self.ours, self.plain, strict=True)]

    def row(self, name: str) -> str:
        """One line of the table."""
        stepped = [each.stepped for each in self.ours]
        cells = [
            f"{statistics.median(stepped):.1f}",
            f"{min(stepped):.1f} to {max(stepped):.1f}",
            f"{statistics.median(each.stepped for each in self.plain):.1f}",
            f"{statistics.median(self.overheads):.2f}",
            f"{min(self.overheads):.2f} to {max(self.overheads):.2f}",
        ]
        return f"| {name} | {' | '.join(cells)} |"


def times_of(folder: Path, began: float) -> Times:
    """Read them from what the trainer has written."""
    goodput = json_lines((folder / "goodput.jsonl").read_text(encoding="utf-8"))
    metrics = json_lines((folder / "metrics.jsonl").read_text(encoding="utf-8"))
    begun = next(float(each["time"]) for each in goodput if each["kind"] == "start")
    stepped = next(float(each["time"]) for each in metrics if each["kind"] == "train")
    return Times(begun=begun - began, stepped=stepped - began)


def plain(config: Mapping[str, Any], folder: Path) -> Times:
    """Start torchrun itself."""
    folder.mkdir()
    (folder / "trainer.yaml").write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("-m", "trainer", "--config", str(folder / "trainer.yaml"), "--output_dir", str(folder)),
    ]
    with (folder / "log").open("wb") as log:
        began = time.time()
        subprocess.run(command, check=True, stdout=log, stderr=log)
    return times_of(folder, began)


def ours(engine: Engine, config: Mapping[str, Any], name: str) -> Times:
    """Launch by a process of its own, as a person would."""
    run = engine.create(name, config, nnodes=1, nproc_per_node=2, trainer_command=default_trainer_command())
    began = time.time()
    subprocess.run([sys.executable, "-c", LAUNCH, str(run.path)], check=True)
    status = engine.end(run)
    if status.state is not RunState.SUCCEEDED:
        raise SystemExit(f"{engine.name}: the run is {status.state}: {status.cause}")
    engine.launcher.collect(run)
    return times_of(run.path, began)


def data_for(engine: Engine, folder: Path) -> str:
    """A small dataset where the engine's processes see it."""
    write_dataset(folder / "data", train_rows=500, test_rows=50, num_dense=3, num_sparse=4)
    if not engine.bucket:
        return str(folder / "data")
    import s3fs  # noqa: PLC0415 - an extra

    files = s3fs.S3FileSystem(endpoint_url=engine.usual["environment"]["AWS_ENDPOINT_URL"])
    files.put(str(folder / "data"), f"{engine.bucket}/data", recursive=True)
    return f"{engine.bucket}/data"


def measure(name: str, rounds: int) -> Pairs:
    """Both ways in turn, after one of each that is not counted."""
    pairs = Pairs()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "engine").mkdir()
        with ENGINES[name](folder / "engine") as engine:
            config = {**MODEL, "dataset_path": data_for(engine, folder)}
            for number in range(-1, rounds):
                one = plain({**config, "dataset_path": str(folder / "data")}, folder / f"plain{number}")
                other = ours(engine, config, f"round{number + 1}")
                if number >= 0:
                    pairs.plain.append(one)
                    pairs.ours.append(other)
                print(
                    json.dumps({"engine": name, "torchrun": vars(one), "ours": vars(other)}), file=sys.stderr
                )
    return pairs


def rows(measured: Mapping[str, Pairs]) -> Iterator[str]:
    """The table."""
    yield "| engine | first step s, median | from, to | torchrun's | overhead s, median | from, to |"
    yield "|---|---|---|---|---|---|"
    for name, pairs in measured.items():
        yield pairs.row(name)


def main() -> int:
    """Print the table; 1 where an engine's median overhead is above the limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each way, on each engine")
    parser.add_argument("--engine", action="append", choices=sorted(ENGINES), help="only these")
    parser.add_argument("--write", action="store_true", help="keep the report under benchmarks/results")
    asked = parser.parse_args()
    measured, absent = {}, []
    for name in asked.engine or ENGINES:
        try:
            measured[name] = measure(name, asked.rounds)
        except pytest.skip.Exception as reason:
            absent.append(f"Without {name}: {reason}.")
    title = f"# From `train` to the first step, {today()}"
    how = f"Two processes on one node, {asked.rounds} rounds. Limit of the overhead: {LIMIT_S:g} s."
    note = " ".join([describe_machine(), how, *absent])
    report = "\n".join([title, "", note, "", *rows(measured), ""])
    print(report)
    if asked.write:
        (RESULTS / f"launchers-{today()}.md").write_text(report, encoding="utf-8")
    return 0 if all(statistics.median(each.overheads) <= LIMIT_S for each in measured.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
