"""Endurance: runs whose processes are killed at random end like uninterrupted ones."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.tallies import Tally
from tests.trainer.support_chaos import Chaos, Toll
from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import SMALL

if TYPE_CHECKING:
    from pathlib import Path

KILLS = int(os.environ.get("CHAOS_KILLS", "220"))
KILLS_A_RUN = 20
PLANS = (("table_wise",), ("row_wise",), ("column_wise",), ("table_wise", "row_wise"))
SETTINGS: dict[str, Any] = {
    **{key: ",".join(map(str, value)) if isinstance(value, tuple) else value for key, value in SMALL.items()},
    "table_optimizer": "adagrad",  # its state can be cut by columns, and cut otherwise afterwards
    "dense_optimizer": "adagrad",
    "global_batch_size": 64,
    "num_epochs": 3,
    "checkpoint_interval": 10,
    "checkpoint_chain": 2,  # merged often
    "log_interval": 2,
    "eval_interval": 0,
    "device": "cpu",
}
ROWS = 20_000
STEADY = {"deterministic": "true"}
# Adagrad's first steps are the signs of gradients: where one is near 0, additions in another order, as
# another number of ranks does them, turn it around. With these, what differs is rounding alone.
SMOOTH = {"dense_optimizer": "sgd", "optimizer_eps": 0.1}
CLOSE = 1e-6  # of a tensor's largest weight


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("chaos") / "data"
    write_dataset(directory, train_rows=ROWS, num_embeddings=3000)
    return directory


def _chaos(folder: Path, dataset: Path, seed: int, toll: Toll, **settings: Any) -> Chaos:
    return Chaos(folder, {**SETTINGS, "dataset_path": dataset, **settings}, random.Random(seed), toll)  # noqa: S311 - no secret


@pytest.mark.soak
def test_killed_runs_of_one_world_size_produce_the_identical_model(
    dataset: Path, tmp_path: Path, tally: Tally
) -> None:
    toll, nobody = Toll(), Toll()
    undisturbed = _chaos(tmp_path / "calm", dataset, 0, nobody, **STEADY).run([2], [PLANS[0]], 0)
    seed = 0
    while toll.total < KILLS // 2:
        seed += 1
        chaos = _chaos(tmp_path / str(seed), dataset, seed, toll, **STEADY)
        ended = chaos.run([2], [PLANS[0]], KILLS_A_RUN)
        for key in ("samples_seen", "samples_digest", "model_digest", "auc"):
            assert ended[key] == undisturbed[key], (seed, key)
    tally(f"one world: {toll}; every samples_digest and model_digest as undisturbed")


@pytest.mark.soak
def test_killed_runs_that_change_world_size_and_plan_lose_no_sample(
    dataset: Path, tmp_path: Path, tally: Tally
) -> None:
    toll, nobody = Toll(), Toll()
    calm = _chaos(tmp_path / "calm", dataset, 0, nobody, **SMOOTH)
    undisturbed = calm.run([1], [PLANS[0]], 0)
    weights, worst, seed = calm.weights(), 0.0, 100
    while toll.total < KILLS - KILLS // 2:
        seed += 1
        chaos = _chaos(tmp_path / str(seed), dataset, seed, toll, **SMOOTH)
        ended = chaos.run([1, 2, 4], PLANS, KILLS_A_RUN)
        for key in ("samples_seen", "samples_digest"):
            assert ended[key] == undisturbed[key], (seed, key)
        for name, values in chaos.weights().items():
            scale = float(np.abs(weights[name]).max())
            worst = max(worst, float(np.abs(values - weights[name]).max()) / scale)
    tally(
        f"moving worlds: {toll}; every samples_digest as undisturbed; weights differ by at most {worst:.2g}"
    )
    assert worst <= CLOSE
