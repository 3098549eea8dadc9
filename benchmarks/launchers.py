"""The time from `train` to the first step on each engine, compared with plain torchrun, and the overhead.

    python -m benchmarks.launchers [--rounds 5] [--engine local --engine slurm ...] [--write]

Each engine is warm: the Kubernetes stand-in has the image on its nodes, and Ray and Slurm are idle.
Every launch is a separate process that checks the run, submits it and ends. Launches alternate with torchrun
of the same trainer, two processes on one node, so that other load on this machine affects both. torchrun is
started directly, and on Ray and Slurm also by `ray job submit` and `sbatch`. The overhead is the delay of the
start of the trainer's processes relative to the engine's command; from there to the first step, both do the
same. On Kubernetes it includes the scheduling and the start of pods.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
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
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.outputs import json_lines
from cloudrec.launchers.base.runspec import default_trainer_command
from tests.conformance.support_launchers import ENGINES, Engine
from tests.trainer.support_dataset import write_dataset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LIMIT_S = 2.0
ROUNDS = 5
RESULTS = Path(__file__).parent / "results"
LAUNCH = """
import sys
from pathlib import Path
from cloudrec.launchers import launcher
from cloudrec.launchers.base.run_folder import RunFolder
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
    """The alternating measurements on one engine.

    Attributes:
        ours: by the launcher.
        plain: by torchrun.
        usual: by torchrun as the engine's own command starts it; as `plain` where it has none.
    """

    ours: list[Times] = field(default_factory=list)
    plain: list[Times] = field(default_factory=list)
    usual: list[Times] = field(default_factory=list)

    @property
    def overheads(self) -> list[float]:
        """How much later the trainer began than in the engine's own way just before."""
        return [ours.begun - usual.begun for ours, usual in zip(self.ours, self.usual, strict=True)]

    def row(self, name: str) -> str:
        """One line of the table."""
        stepped = [each.stepped for each in self.ours]
        cells = [
            f"{statistics.median(stepped):.1f}",
            f"{min(stepped):.1f} to {max(stepped):.1f}",
            f"{statistics.median(each.stepped for each in self.plain):.1f}",
            f"{statistics.median(each.stepped for each in self.usual):.1f}",
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


def torchrun(config: Mapping[str, Any], folder: Path) -> list[str]:
    """The command, once its configuration is in the folder."""
    folder.mkdir()
    (folder / "trainer.yaml").write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("-m", "trainer", "--config", str(folder / "trainer.yaml"), "--output_dir", str(folder)),
    ]


def timed(command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Times:
    """Run a command that ends when the training does."""
    with (folder / "log").open("wb") as log:
        began = time.time()
        subprocess.run(command, check=True, stdout=log, stderr=log, env={**os.environ, **variables})
    return times_of(folder, began)


def plain(config: Mapping[str, Any], folder: Path) -> Times:
    """Start torchrun itself."""
    return timed(torchrun(config, folder), folder, {})


def usual(engine: Engine, config: Mapping[str, Any], folder: Path) -> Times | None:
    """Start torchrun by the engine's own command; None where the engine has none."""
    if engine.name == "slurm":
        command = torchrun(config, folder)
        wrapped = f"srun {shlex.join(command)}"
        asked = ("--nodes=1", "--ntasks=1", "--cpus-per-task=2", f"--output={folder}/job", "--export=ALL")
        return timed(["sbatch", "--wait", *asked, f"--wrap={wrapped}"], folder, engine.variables)
    if engine.name == "ray":
        command = torchrun(config, folder)
        settings = engine.usual["settings"]
        ray = str(Path(sys.executable).with_name("ray"))
        variables = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": settings["token_file"],
            "RAY_ADDRESS": settings["address"],
        }
        (folder / "sent").mkdir()
        given = ("--working-dir", str(folder / "sent"), "--entrypoint-num-cpus", "2")
        return timed([ray, "job", "submit", *given, "--", *command], folder, variables)
    return None


def ours(engine: Engine, config: Mapping[str, Any], name: str) -> Times:
    """Launch by its own process, as a person would."""
    run = engine.create(name, config, nodes=1, nproc_per_node=2, trainer_command=default_trainer_command())
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
    """Measure both ways alternately, after one warm-up of each."""
    pairs = Pairs()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "engine").mkdir()
        with ENGINES[name](folder / "engine") as engine:
            config = {**MODEL, "dataset_path": data_for(engine, folder)}
            for number in range(-1, rounds):
                near = {**config, "dataset_path": str(folder / "data")}
                one = plain(near, folder / f"plain{number}")
                two = usual(engine, near, folder / f"usual{number}") or one
                three = ours(engine, config, f"round{number + 1}")
                if number >= 0:
                    pairs.plain.append(one)
                    pairs.usual.append(two)
                    pairs.ours.append(three)
                told = {"torchrun": vars(one), "usual": vars(two), "ours": vars(three)}
                print(json.dumps({"engine": name, **told}), file=sys.stderr)
    return pairs


def rows(measured: Mapping[str, Pairs]) -> Iterator[str]:
    """The table."""
    yield (
        "| engine | first step s, median | from, to | torchrun's | torchrun's by the engine's own command "
        "| overhead s, median | from, to |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name, pairs in measured.items():
        yield pairs.row(name)


def main() -> int:
    """Print the table; return 1 if an engine's median overhead is above the limit."""
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
    # On Kubernetes, the overhead includes the start of pods.
    own = [pairs for name, pairs in measured.items() if name != "kubernetes"]
    return 0 if all(statistics.median(each.overheads) <= LIMIT_S for each in own) else 1


if __name__ == "__main__":
    sys.exit(main())
