"""Managed collision from tables to scores: stable hashes, resumed runs, other ranks, frozen rows."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.data.check import check
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.errors import DataError
from cloudrec_contract.features import HASH_LIMIT, SchemaError, parse
from tests.trainer.support_runs import Outcome, command, run_here
from trainer.base.errors import ConfigError
from trainer.checkpoint.load.reading import open_committed
from trainer.commands import export, predict
from trainer.serving.scorer import TrainedModel, read_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

ROWS, USERS, BUCKETS = 2_000, 300, 80
SPARSE: list[Any] = [
    {"name": "user", "encoding": "managed_collision", "buckets": BUCKETS},
    "city",
    {"name": "tags", "kind": "multi_hot", "encoding": "managed_collision", "buckets": 1_000},
    {"name": "visits", "kind": "sequence", "max_length": 3, "table": "user", "encoding": "managed_collision"},
]
SPARSE[3]["buckets"] = BUCKETS
SCHEMA = parse({"label": "clicked", "dense": ["price"], "sparse": SPARSE})
SETTINGS: dict[str, Any] = {
    "model": "wide_deep",
    "embedding_dim": 8,
    "over_arch_layer_sizes": (8, 1),
    "batch_size": 50,
    "num_epochs": 2,
    "lr_decay": "none",
    "deterministic": True,
    "checkpoint_interval": 7,
    "learning_rate": 0.1,
}


def _rows(seed: int) -> dict[str, list[Any]]:
    random = np.random.default_rng(seed)
    users = np.minimum(random.geometric(0.02, ROWS), USERS)
    return {
        "clicked": ((users % 3 == 0) ^ (random.random(ROWS) < 0.2)).astype(int).tolist(),
        "price": random.normal(size=ROWS).tolist(),
        "user": [None if each == 2 else f"u{each}" for each in users.tolist()],
        "city": [f"c{each}" for each in random.integers(0, 9, ROWS)],
        "tags": [[f"t{each}" for each in random.integers(0, 300, n)] for n in random.integers(0, 4, ROWS)],
        "visits": [[f"u{each}" for each in random.geometric(0.1, n)] for n in random.integers(0, 5, ROWS)],
    }


def _prepared(folder: Path, name: str, rows: dict[str, list[Any]], options: PrepareOptions | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(rows), folder / f"{name}.parquet")
    schema = SCHEMA if options is None else None
    source, out = str(folder / f"{name}.parquet"), folder / name
    prepare(source, out, **({"schema": schema} if options is None else {"options": options}))
    return out


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _prepared(tmp_path_factory.mktemp("rows"), "data", _rows(1), None)


@pytest.fixture(scope="module")
def whole(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_here(dataset, tmp_path_factory.mktemp("whole"), **SETTINGS)


def _model(run: Path) -> TrainedModel:
    return read_checkpoint(open_committed(str(run / "checkpoints")))


def test_ids_on_disk_are_the_same_hashes_in_all_files(dataset: Path, tmp_path: Path) -> None:
    assert check(dataset, deep=True).rows == ROWS
    like = PrepareOptions(like=str(dataset), test_fraction=0.0)
    other = _prepared(tmp_path, "more", _rows(2), like)
    by_user: dict[str, set[int]] = {}
    for folder, rows in ((dataset, _rows(1)), (other, _rows(2))):
        users = np.load(folder / "train" / "shard-00000.sparse.npy")[0]
        values = np.load(folder / "train" / "shard-00000.values.npy")
        assert users.dtype == values.dtype == np.int64
        assert users.min() == 0
        assert users.max() < HASH_LIMIT
        if folder == other:
            for text, found in zip(rows["user"], users.tolist(), strict=True):
                by_user.setdefault(text, set()).add(found)
    assert all(len(found) == 1 for found in by_user.values())
    assert len({min(found) for found in by_user.values()}) == len(by_user)
    assert by_user.pop(None) == {0}  # type: ignore[call-overload] # a missing value
    known = set(np.load(dataset / "train" / "shard-00000.sparse.npy")[0].tolist())
    frequent = [text for text in by_user if int(text[1:]) < 20]
    assert frequent
    assert all(by_user[text] <= known for text in frequent)


def test_a_damaged_type_is_found(dataset: Path, tmp_path: Path) -> None:
    document = json.loads((dataset / "dataset.json").read_text())
    for each in document["features"]["sparse"]:
        each["encoding"] = "hash"
    damaged = tmp_path / "damaged"
    subprocess.run(["cp", "-r", dataset, damaged], check=True)
    (damaged / "dataset.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="holds int64"):
        check(damaged)


def test_an_interrupted_run_equals_a_whole_one(dataset: Path, whole: Outcome, tmp_path: Path) -> None:
    for steps in (9, 30, None):
        parts = run_here(dataset, tmp_path, **SETTINGS, num_iterations=steps)
    assert parts.summary["model_digest"] == whole.summary["model_digest"]
    assert [line["resumed_from"] for line in parts.lines("start")] == [None, 9, 30]
    ids = _model(whole.directory).managed["user"]
    assert int((ids != 0).sum()) == BUCKETS - 2, "the table must be full"
    assert len(ids[ids != 0].unique()) == BUCKETS - 2


@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_a_run_resumed_with_two_ranks_gives_the_same_rows(
    dataset: Path, whole: Outcome, tmp_path: Path, mode: str
) -> None:
    settings = {**SETTINGS, "checkpoint_mode": mode}
    run_here(dataset, tmp_path, **settings, num_iterations=20)
    words = command(dataset, tmp_path, ranks=2, **{**settings, "batch_size": 25})
    subprocess.run([*words, "--sharding_types", "row_wise"], check=True, capture_output=True, timeout=240)
    there, here = _model(tmp_path), _model(whole.directory)
    for table in ("user", "tags"):
        assert there.managed[table].tolist() == here.managed[table].tolist()
        np.testing.assert_allclose(there.tables[table], here.tables[table], atol=2e-4)
    assert Outcome(0, tmp_path).summary["samples_digest"] == whole.summary["samples_digest"]


def test_an_incremental_checkpoint_has_the_rows_that_steps_changed(dataset: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "checkpoint_mode": "incremental", "num_embeddings": 50_000, "num_epochs": 1}
    run = run_here(dataset, tmp_path, **settings)
    whole = 2 * 50_000 * 3 * 8  # ids, counts and steps of both tables
    sizes = [line["bytes"] for line in run.lines("checkpoint")]
    assert len(sizes) > 3
    assert max(sizes) < whole / 4
    resumed = run_here(dataset, tmp_path, **{**settings, "num_epochs": 2})
    at_once = run_here(dataset, tmp_path / "whole", **{**settings, "num_epochs": 2})
    assert resumed.summary["model_digest"] == at_once.summary["model_digest"]


def _predict(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    capsys.readouterr()
    assert predict.main([str(word) for word in words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_scoring_uses_the_rows_of_the_training_and_changes_none(
    dataset: Path, whole: Outcome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = whole.directory / "checkpoints"
    printed = _predict(capsys, "--checkpoint", checkpoints, "--dataset_path", dataset)
    assert printed["auc"] == pytest.approx(whole.summary["auc"], abs=1e-6)
    assert printed["auc"] > 0.6
    rows = {name: values[:4] for name, values in _rows(3).items()}
    rows |= {"price": [0.5] * 4, "city": ["c1"] * 4, "tags": [[]] * 4, "visits": [[]] * 4}
    rows["user"] = ["unseen 1", "unseen 2", "u3", "u4"]
    pq.write_table(pa.table(rows), tmp_path / "new.parquet")
    assert export.main(["--checkpoint", str(checkpoints), "--out", str(tmp_path / "model")]) == 0
    for name, model in {"run": checkpoints, "model": tmp_path / "model"}.items():
        out = tmp_path / f"{name}.npy"
        _predict(capsys, "--checkpoint", model, "--raw", tmp_path / "new.parquet", "--out", out)
    scores = np.load(tmp_path / "run.npy")
    assert scores[0] == scores[1], "values without a row are the same"
    assert len(set(scores[1:].tolist())) == 3
    assert (tmp_path / "run.npy").read_bytes() == (tmp_path / "model.npy").read_bytes()
    assert np.load(tmp_path / "model" / "managed" / "user.npy").shape == (BUCKETS,)


def test_weighted_lists_and_crosses_are_managed_too(tmp_path: Path) -> None:
    sparse = [
        {**SPARSE[2], "weights": "scores"},
        {"name": "pair", "cross": ["user", "city"], "encoding": "managed_collision", "buckets": BUCKETS},
    ]
    rows = _rows(1)
    random = np.random.default_rng(4)
    models = []
    for name, factor in {"ones": 0.0, "weights": 1.0}.items():
        rows["scores"] = [(1 + factor * random.random(len(each))).tolist() for each in rows["tags"]]
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(rows), tmp_path / name / "rows.parquet")
        schema = parse({"label": "clicked", "dense": ["price"], "sparse": sparse})
        prepare(str(tmp_path / name / "rows.parquet"), tmp_path / name / "data", schema=schema)
        run_here(tmp_path / name / "data", tmp_path / name / "run", **SETTINGS)
        models.append(_model(tmp_path / name / "run"))
    assert int((models[0].managed["pair"] != 0).sum()) == BUCKETS - 2
    assert models[0].managed["tags"].tolist() == models[1].managed["tags"].tolist()
    assert not np.allclose(models[0].tables["tags"], models[1].tables["tags"], atol=1e-3)


def test_the_least_recent_id_can_give_way_instead(dataset: Path, whole: Outcome, tmp_path: Path) -> None:
    other = run_here(dataset, tmp_path, **SETTINGS, managed_eviction="lru")
    assert _model(tmp_path).managed["user"].tolist() != _model(whole.directory).managed["user"].tolist()
    assert other.summary["samples_digest"] == whole.summary["samples_digest"]


def test_a_schema_or_a_model_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="buckets of user is 2; two rows are for missing and for unknown"):
        parse({"label": "clicked", "sparse": [{**SPARSE[0], "buckets": 2}]})
    folder, rows = tmp_path / "items", _rows(1)
    folder.mkdir()
    pq.write_table(pa.table(rows), folder / "rows.parquet")
    schema = parse({"label": "clicked", "sparse": SPARSE, "item": ["user"]})
    prepare(str(folder / "rows.parquet"), folder / "data", schema=schema)
    with pytest.raises(ConfigError, match="user, which has encoding managed_collision"):
        run_here(folder / "data", tmp_path / "run", **{**SETTINGS, "model": "two_tower"})
