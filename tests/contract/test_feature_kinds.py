"""The rarer kinds of features, from raw rows to the same scores, also of a run that was killed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec_contract.features import parse
from tests.trainer.support_runs import Outcome, command, kill, run_here, start, wait_until
from trainer.commands import export, predict

ROWS = 3_000
FEATURES: dict[str, Any] = {
    "label": "clicked",
    "split": {"by": "user", "column": "user", "test": 0.1},
    "dense": [
        {"name": "price", "clip": [-1, 1], "transform": "min_max"},
        {"name": "wealth", "column": "city", "lookup": {"city 1": 2, "city 2": 0.5}},
    ],
    "sparse": [
        {"name": "city", "min_frequency": 140, "unknown_buckets": 3},
        {"name": "city_device", "cross": ["city", "device"], "buckets": 50},
        {"name": "region", "column": "city", "lookup": {f"city {each}": each // 5 for each in range(15)}},
        {"name": "tags", "kind": "multi_hot", "weights": "tag_scores", "min_frequency": 1},
        {"name": "words", "kind": "multi_hot", "weights": "word_scores", "pooling": "mean", "table": "words"},
        {"name": "path", "column": "words", "kind": "sequence", "max_length": 3, "pooling": "position"},
    ],
}
MODEL: dict[str, Any] = {"embedding_dim": 4, "dense_arch_layer_sizes": (4,), "over_arch_layer_sizes": (16, 1)}
MODEL |= {
    "batch_size": 50,
    "num_epochs": 10,
    "learning_rate": 0.1,
    "dense_learning_rate": 0.01,
    "lr_decay": "none",
    "threads": 1,
    "deterministic": True,
    "table_optimizer": "adagrad",
}


def _rows(seed: int) -> dict[str, list[Any]]:
    random = np.random.default_rng(seed)
    city = random.integers(0, 20, ROWS)
    tags = [random.integers(0, 9, random.integers(0, 5)) for _ in range(ROWS)]
    scores = [random.normal(size=len(each)) for each in tags]
    liked = [float(score[tag < 4].sum()) for tag, score in zip(tags, scores, strict=True)]
    return {
        "clicked": [bool(each > random.normal(0, 0.3)) for each in liked],
        "price": random.normal(size=ROWS).tolist(),
        "city": [f"city {each}" if each else None for each in city],
        "user": random.integers(0, 500, ROWS).tolist(),
        "device": random.choice(["ios", "android", "web"], ROWS).tolist(),
        "tags": [[f"t{each}" for each in row] for row in tags],
        "tag_scores": [each.tolist() for each in scores],
        "words": [[f"w{each}" for each in row] for row in tags],
        "word_scores": [np.abs(each).tolist() for each in scores],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    pq.write_table(pa.table(_rows(1)), folder / "rows.parquet")
    pq.write_table(pa.table(_rows(2)), folder / "tomorrow.parquet")
    prepare(str(folder / "rows.parquet"), folder / "data", schema=parse(FEATURES))
    return folder


@pytest.fixture(scope="module")
def learned(folder: Path) -> Outcome:
    return run_here(folder / "data", folder / "run", **MODEL)


def test_it_learns_what_only_these_features_say(learned: Outcome) -> None:
    assert learned.summary["auc"] > 0.8


def test_without_weights_it_is_not_learned(folder: Path, tmp_path: Path) -> None:
    sparse = [
        {key: each[key] for key in each if key != "weights"} if isinstance(each, dict) else each
        for each in FEATURES["sparse"]
    ]
    prepare(str(folder / "rows.parquet"), tmp_path / "data", schema=parse({**FEATURES, "sparse": sparse}))
    assert run_here(tmp_path / "data", tmp_path / "run", **MODEL).summary["auc"] < 0.6


def test_raw_prepared_and_exported_scores_are_the_same_bytes(
    folder: Path, learned: Outcome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints, model = learned.directory / "checkpoints", tmp_path / "model"
    assert export.main(["--checkpoint", str(checkpoints), "--out", str(model)]) == 0
    raw = folder / "tomorrow.parquet"
    for like in (folder / "data", model):
        out = tmp_path / f"like-{like.name}"
        prepare(str(raw), out, options=PrepareOptions(like=str(like), test_fraction=0.0))
    scores = set()
    for scorer in (checkpoints, model):
        for words in (
            ["--raw", raw],
            ["--dataset_path", tmp_path / "like-data", "--split", "train"],
            ["--dataset_path", tmp_path / "like-model", "--split", "train"],
        ):
            out = tmp_path / "scores.npy"
            given = ["--checkpoint", scorer, *words, "--out", out]
            assert predict.main([str(each) for each in given]) == 0
            scores.add(out.read_bytes())
    printed = capsys.readouterr().out.strip().splitlines()
    assert json.loads(printed[-1])["auc"] > 0.8
    assert len(scores) == 1
    assert np.unique(np.load(tmp_path / "scores.npy")).size > ROWS / 2


def test_managed_ids_keep_their_weights(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {"encoding": "managed_collision", "buckets": 64}
    sparse = [
        {"name": "tags", "kind": "multi_hot", "weights": "tag_scores", **keys},
        {"name": "city_device", "cross": ["city", "device"], **keys},
    ]
    prepare(str(folder / "rows.parquet"), tmp_path / "data", schema=parse({**FEATURES, "sparse": sparse}))
    run = run_here(tmp_path / "data", tmp_path / "run", **MODEL)
    assert run.summary["auc"] > 0.8
    words = ["--checkpoint", run.directory / "checkpoints", "--raw", folder / "tomorrow.parquet"]
    assert predict.main([str(each) for each in words]) == 0
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["auc"] > 0.8


@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_and_resumed_is_the_same_model_bit_by_bit(folder: Path, tmp_path: Path, ranks: int) -> None:
    settings = {**MODEL, "checkpoint_interval": 40, "checkpoint_async": False}
    whole, killed = (
        command(folder / "data", tmp_path / name, ranks=ranks, **settings) for name in ("whole", "killed")
    )
    subprocess.run(whole, check=True, capture_output=True)
    process = start(killed, tmp_path / "log")
    steps = (tmp_path / "killed" / "checkpoints").glob
    wait_until(lambda: bool(list(steps("step-*/commit-*.json"))), process)
    kill(process)
    assert not (tmp_path / "killed" / "summary.json").exists(), "it must be killed before its end"
    subprocess.run(killed, check=True, capture_output=True)
    one, other = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "killed"))
    lines = map(json.loads, (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines())
    assert [line["resumed_from"] for line in lines if line["kind"] == "start"][-1]
    for name in ("model_digest", "samples_digest", "auc"):
        assert one[name] == other[name]
