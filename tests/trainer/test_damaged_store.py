"""A run with default settings survives damage to any one file of its checkpoints."""

from __future__ import annotations

import random
import shutil
from itertools import cycle, product
from pathlib import Path

import pytest

from tests.trainer.support_damage import DAMAGES_OF_A_FILE, EVERY_DAMAGE
from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import Outcome, run_here

EXACT = {"deterministic": True, "num_epochs": 2, "lr_decay": "none", "checkpoint_interval": 5}
SAVED, END = 60, 65


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    write_dataset(path, train_rows=1000, test_rows=200, num_dense=3, num_sparse=4, num_embeddings=4000)
    return path


@pytest.fixture(scope="module")
def stopped(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A run of three chains, to be resumed."""
    return run_here(dataset, tmp_path_factory.mktemp("stopped"), **EXACT, num_iterations=SAVED)


def test_every_save_records_an_older_independent_checkpoint(stopped: Outcome) -> None:
    saves = stopped.lines("checkpoint")
    kinds = [(line["step"], line["content"], line["fallback_step"]) for line in saves]
    first_chain = [(5, "differential", None)]
    second_chain = [(10, "merged", 5), *((step, "differential", 5) for step in range(15, 50, 5))]
    third_chain = [(50, "merged", 45), (55, "differential", 45), (60, "differential", 45)]
    assert kinds == first_chain + second_chain + third_chain
    assert {(line["shared_layers"], line["shared_with"]) for line in saves} == {(0, None)}


def test_a_save_reports_a_missing_independent_checkpoint(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_here(dataset, tmp_path, **EXACT, num_iterations=10)
    first, second = [line for line in capsys.readouterr().out.splitlines() if "checkpoint" in line]
    assert first.startswith("step 5: differential checkpoint, ")
    assert first.endswith("; no other checkpoint is kept yet")
    assert second.startswith("step 10: merged checkpoint, ")
    assert second.endswith(" ms")


def test_a_run_resumes_exactly_after_damage_to_any_one_file(
    dataset: Path, tmp_path: Path, stopped: Outcome
) -> None:
    whole = run_here(dataset, tmp_path / "whole", **EXACT, num_iterations=END).summary
    files = [path for path in stopped.directory.rglob("checkpoints/*/*") if path.is_file()]
    resumed = set()
    for number, (file, damage) in enumerate(zip(sorted(files), cycle(DAMAGES_OF_A_FILE), strict=False)):
        run = tmp_path / str(number)
        shutil.copytree(stopped.directory, run)
        DAMAGES_OF_A_FILE[damage](run / file.relative_to(stopped.directory))
        outcome = run_here(dataset, run, **EXACT, num_iterations=END)
        resumed.add(outcome.lines("start")[-1]["resumed_from"])
        assert outcome.summary["model_digest"] == whole["model_digest"], file
        assert outcome.summary["samples_digest"] == whole["samples_digest"], file
    assert resumed == {45, 55, 60}


@pytest.mark.parametrize(
    "most",
    [
        pytest.param(20, id="20", marks=pytest.mark.slow),
        pytest.param(None, id="every", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_every_damage_to_every_file_of_a_store(
    dataset: Path, tmp_path: Path, stopped: Outcome, most: int | None
) -> None:
    whole = run_here(dataset, tmp_path / "whole", **EXACT, num_iterations=END).summary
    store = stopped.directory / "checkpoints"
    files = sorted(path for path in store.rglob("*") if path.is_file())
    pairs = list(product(files, EVERY_DAMAGE))
    if most is not None:
        pairs = random.Random(7).sample(pairs, most)  # noqa: S311 - a part of the product
    losses: dict[int, int] = {}
    for file, damage in pairs:
        run = tmp_path / "run"
        shutil.copytree(stopped.directory, run)
        EVERY_DAMAGE[damage](run / file.relative_to(stopped.directory))
        outcome = run_here(dataset, run, **EXACT, num_iterations=END)
        where = f"{file.relative_to(store)}: {damage}"
        assert outcome.summary["model_digest"] == whole["model_digest"], where
        assert outcome.summary["samples_digest"] == whole["samples_digest"], where
        resumed = outcome.lines("start")[-1]["resumed_from"]
        losses[resumed] = losses.get(resumed, 0) + 1
        shutil.rmtree(run)
    print(f"{len(pairs)} damages to {len(files)} files: resumed from {dict(sorted(losses.items()))}")
    assert losses.keys() <= {45, 55, 60}
