from __future__ import annotations

import gzip
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from tests.trainer.support_runs import run_here
from trainer.base.arguments import make_config
from trainer.base.errors import CheckpointError, ConfigError, DatasetError
from trainer.data.batch import Batch
from trainer.data.formats.open import open_source
from trainer.data.stream import ShardArrays

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainer.base.config import TrainerConfig
    from trainer.data.source import SampleSource

ROWS, TABLE = 500, 40
TSV = {"num_embeddings": TABLE}


def _line(row: int, **changes: str) -> str:
    """A raw line: numbers are the row's, -1 and missing; categories count up, C26 is missing."""
    fields = {"label": str((row % 3 == 0 and 1) or 0)}
    fields |= {f"I{i}": str(row) for i in range(1, 12)} | {"I12": "-1", "I13": ""}
    fields |= {f"C{i}": f"{row * 31 + i:08x}" for i in range(1, 26)} | {"C26": ""}
    return "\t".join((fields | changes).values()) + "\n"


def _write_days(directory: Path, days: int = 3, rows: int = 100) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    sparse = []
    for day in range(days):
        sparse.append(random.integers(0, TABLE, (rows + day, 26), dtype=np.int32))
        np.save(directory / f"day_{day}_dense.npy", random.random((rows + day, 13), dtype=np.float32))
        np.save(directory / f"day_{day}_sparse.npy", sparse[-1])
        labels = random.integers(0, 2, (rows + day, 1), dtype=np.int32)
        np.save(directory / f"day_{day}_labels.npy", labels)
    return sparse


def _table(rows: int, **changes: Any) -> pa.Table:
    columns: dict[str, Any] = {f"C{i}": np.arange(rows) % (i + 3) for i in range(26, 0, -1)}
    columns |= {f"I{i}": np.arange(rows, dtype=np.float64) / rows for i in range(1, 14)}
    columns |= {"label": np.arange(rows) % 2, "other": ["text"] * rows}
    return pa.table(columns | changes)


def _open(path: Path, **settings: Any) -> SampleSource:
    return open_source(make_config({"dataset_path": str(path), **settings}))


def _samples(source: SampleSource, split: str) -> Batch:
    rows = {"train": source.train, "test": source.test}[split].rows
    (batch,) = source.batches(split, batch_size=rows, rank=0, world_size=1)
    return batch


@pytest.mark.parametrize("name", ["day.tsv", "day.txt.gz"])
def test_raw_text_is_parsed_like_data_prepare(tmp_path: Path, name: str) -> None:
    text = "".join(map(_line, range(ROWS))).encode()
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    source = _open(tmp_path, **TSV)
    assert (source.train.rows, source.test.rows, source.checked) == (ROWS, ROWS, True)
    batch = _samples(source, "train")
    row = 123
    assert batch.labels[row] == 1
    expected = [math.log1p(row)] * 11 + [0.0, 0.0]
    torch.testing.assert_close(batch.dense[row], torch.tensor(expected))
    ids = [1 + (row * 31 + i) % (TABLE - 1) for i in range(1, 26)] + [0]
    assert batch.sparse[:, row].tolist() == ids


def test_the_held_out_rows_are_deterministic(tmp_path: Path) -> None:
    path = tmp_path / "day.tsv"
    path.write_text("".join(map(_line, range(ROWS))))
    first, again = _open(path, **TSV, test_fraction=0.2), _open(path, **TSV, test_fraction=0.2)
    assert first.digest == again.digest != _open(path, **TSV).digest
    assert first.train.rows + first.test.rows == ROWS
    assert 60 < first.test.rows < 140
    seen = [_samples(first, split).dense[:, 0] for split in ("train", "test")]
    assert torch.cat(seen).unique().numel() == ROWS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "2"}, "the label is '2', not 0 or 1"),
        ({"I3": "1.5"}, "I3 is '1.5', not a whole number"),
        ({"I3": "nan"}, "I3 is 'nan', not a whole number"),
        ({"C7": "xyz"}, "C7 is 'xyz', not hexadecimal"),
        ({"C7": "1_0"}, "C7 is '1_0', not hexadecimal"),
        ({"C26": "1\t2"}, "41 fields, not 40"),
    ],
)
def test_a_bad_line_is_reported_with_its_file_and_number(
    tmp_path: Path, change: dict[str, str], message: str
) -> None:
    path = tmp_path / "day.tsv"
    path.write_text(_line(0) + _line(1) + _line(2, **change) + _line(3))
    with pytest.raises(DatasetError, match=rf"day\.tsv:3: {message}"):
        _open(path, **TSV)


def test_raw_text_needs_table_sizes_and_complete_files(tmp_path: Path) -> None:
    path = tmp_path / "day.tsv.gz"
    path.write_bytes(gzip.compress(_line(0).encode())[:-9])
    with pytest.raises(ConfigError, match="num_embeddings is not set, and raw text"):
        _open(path)
    with pytest.raises(DatasetError, match=r"day\.tsv\.gz: cannot be read"):
        _open(path, **TSV)


def test_all_days_but_the_last_are_trained_on_and_half_of_the_last_is_evaluated_on(tmp_path: Path) -> None:
    sparse = _write_days(tmp_path)
    source = _open(tmp_path)
    assert (source.train.rows, source.test.rows) == (201, 51)
    np.testing.assert_array_equal(_samples(source, "train").sparse.numpy(), np.concatenate(sparse[:2]).T)
    np.testing.assert_array_equal(_samples(source, "test").sparse.numpy(), sparse[2][:51].T)
    highest = max(int(day[:51, 4].max() if day is sparse[2] else day[:, 4].max()) for day in sparse)
    assert source.num_embeddings["C5"] >= highest + 1
    assert _open(tmp_path, num_embeddings=77).num_embeddings["C5"] == 77


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("day_1_dense.npy", np.zeros((101, 13)), r"float64 \[101, 13\], not float32 \[rows, 13\]"),
        ("day_1_sparse.npy", np.zeros((101, 25), np.int32), r"not int32 \[rows, 26\]"),
        ("day_1_labels.npy", np.zeros((99, 1), np.int32), "99 rows, but 101 in its dense"),
        ("day_1_labels.npy", None, "missing, though other files of that day"),
    ],
)
def test_inconsistent_day_files_are_named(
    tmp_path: Path, file: str, content: np.ndarray[Any, Any] | None, message: str
) -> None:
    _write_days(tmp_path)
    (tmp_path / file).unlink()
    if content is not None:
        np.save(tmp_path / file, content)
    with pytest.raises(DatasetError, match=f"{file}: .*{message}"):
        _open(tmp_path)


def test_a_single_day_is_refused(tmp_path: Path) -> None:
    _write_days(tmp_path, days=1)
    with pytest.raises(DatasetError, match="holds 1 days"):
        _open(tmp_path)


def test_parquet_columns_are_selected_by_name(tmp_path: Path) -> None:
    for split, rows in (("train", 200), ("test", 50)):
        (tmp_path / split).mkdir()
        parquet.write_table(_table(rows), tmp_path / split / "part.parquet")
    source = _open(tmp_path)
    batch = _samples(source, "train")
    assert batch.sparse[:, 100].tolist() == [100 % (i + 3) for i in range(1, 27)]
    assert (batch.dense[100, 0], batch.labels[101]) == (0.5, 1.0)
    assert (source.num_embeddings["C1"], source.num_embeddings["C26"]) == (4, 29)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"C3": ["a"] * 9}, "the column C3 holds string; it must hold whole numbers"),
        ({"C3": [0.5] * 9}, "the column C3 holds double; it must hold whole numbers"),
        ({"C3": [0] * 8 + [-1]}, "C3 of row 8 holds the id -1"),
        ({"label": [None] + [1] * 8}, "the column label lacks 1 values"),
    ],
)
def test_invalid_parquet_columns_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    parquet.write_table(_table(9, **change), tmp_path / "data.parquet")
    with pytest.raises(DatasetError, match=message):
        _open(tmp_path / "data.parquet")
    parquet.write_table(_table(9).drop_columns(["I4"]), tmp_path / "data.parquet")
    with pytest.raises(DatasetError, match="has no column I4"):
        _open(tmp_path / "data.parquet")
    (tmp_path / "data.parquet").write_bytes(b"PAR1")
    with pytest.raises(DatasetError, match="cannot be read as Parquet"):
        _open(tmp_path / "data.parquet")


def test_missing_values_in_parquet_become_zero(tmp_path: Path) -> None:
    change = {"C3": pa.array([None] + [5] * 8), "I2": pa.array([None] + [5.0] * 8)}
    parquet.write_table(_table(9, **change), tmp_path / "data.parquet")
    source = _open(tmp_path / "data.parquet", test_fraction=0.01)
    batch = _samples(source, "train")
    assert (batch.sparse[2, 0], batch.dense[0, 1]) == (0, 0)


@pytest.mark.parametrize("kind", ["tsv", "days", "parquet"])
def test_a_run_trains_on_every_format_and_resumes_from_a_checkpoint(tmp_path: Path, kind: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    if kind == "tsv":
        (data / "day.tsv").write_text("".join(map(_line, range(ROWS))))
    elif kind == "days":
        _write_days(data)
    else:
        parquet.write_table(_table(ROWS), data / "data.parquet")
    settings = {"num_embeddings": TABLE, "deterministic": True}
    whole = run_here(data, tmp_path / "whole", **settings).summary
    for steps in (3, None):
        parts = run_here(data, tmp_path / "parts", **settings, num_iterations=steps, lr_decay="none").summary
    plain = run_here(data, tmp_path / "plain", **settings, lr_decay="none").summary
    assert parts["model_digest"] == plain["model_digest"]
    assert whole["samples_seen"] == parts["samples_seen"] > 0


class _Loader:
    """Two tables; sample i has the ids i % 7 and i % 5, and bad values on request."""

    dense_features, sparse_features = ("I1",), ("C1", "C2")
    num_embeddings = {"C1": 7, "C2": 5}  # noqa: RUF012 - as a user would write it
    digest = "v1"

    def __init__(self, config: TrainerConfig, *, resumable: bool = True, **bad: Any) -> None:
        self.seed, self.resumable, self.bad = config.seed, resumable, bad

    def rows(self, split: str) -> int:
        return 1000 if split == "train" else 200

    def batches(
        self, split: str, *, batch_size: int, rank: int, world_size: int, start_sample: int, **_: Any
    ) -> Iterator[Batch]:
        step = batch_size * world_size
        for start in range(start_sample, self.bad.get("end", self.rows(split)), step):
            size = min(step, self.rows(split) - start)
            ids = torch.arange(start + size * rank // world_size, start + size * (rank + 1) // world_size)
            yield self._batch(ids, size)

    def _batch(self, ids: torch.Tensor, size: int) -> Batch:
        sparse = torch.stack([ids % 7, ids % 5]).to(self.bad.get("dtype", torch.int32))
        dense, labels = (ids % 3).float()[:, None], (ids % 2).float()
        for name, tensor in (("dense", dense[:, 0]), ("sparse", sparse[1]), ("labels", labels)):
            if name in self.bad:
                tensor[ids == 110] = self.bad[name]
        if not self.bad.get("bags"):
            weights = self.bad.get("weights", lambda _: None)(ids)
            return Batch(dense, sparse, labels, ids, size, weights=weights)
        lengths = torch.stack([ids % 3, ids % 2 + 1]).int()  # some bags are empty
        bags = sparse.flatten().repeat_interleave(lengths.flatten())
        if "last" in self.bad:
            bags[-1] = self.bad["last"]
        return Batch(dense, bags, labels, ids, size, lengths)


def good(config: TrainerConfig) -> _Loader:
    return _Loader(config)


def once(config: TrainerConfig) -> _Loader:
    return _Loader(config, resumable=False)


def short(config: TrainerConfig) -> _Loader:
    return _Loader(config, end=150)


def wrong_type(config: TrainerConfig) -> _Loader:
    return _Loader(config, dtype=torch.int64)


def bags(config: TrainerConfig) -> _Loader:
    return _Loader(config, bags=True)


def bad_bags(config: TrainerConfig) -> _Loader:
    return _Loader(config, bags=True, last=5)


def nan(config: TrainerConfig) -> _Loader:
    return _Loader(config, dense=math.nan)


def infinite(config: TrainerConfig) -> _Loader:
    return _Loader(config, dense=-math.inf)


def bad_id(config: TrainerConfig) -> _Loader:
    return _Loader(config, sparse=99)


def negative_id(config: TrainerConfig) -> _Loader:
    return _Loader(config, sparse=-1)


def bad_label(config: TrainerConfig) -> _Loader:
    return _Loader(config, labels=0.5)


def weighted(config: TrainerConfig) -> _Loader:
    return _Loader(config, weights=lambda ids: (ids % 4).float())


def bad_weight(config: TrainerConfig) -> _Loader:
    return _Loader(config, weights=lambda ids: torch.where(ids == 110, -1.0, 1.0))


def wrong_weights(config: TrainerConfig) -> _Loader:
    return _Loader(config, weights=lambda ids: torch.ones(len(ids), 1))


class _Arrays:
    """The rows of _Loader in two shards, one of them changed on request."""

    dense_features, sparse_features = _Loader.dense_features, _Loader.sparse_features
    num_embeddings, digest = _Loader.num_embeddings, "v1"

    def __init__(self, **changed: Any) -> None:
        self.changed = changed

    def arrays(self, split: str) -> list[ShardArrays]:
        cuts = (0, 380, 1000) if split == "train" else (0, 200)
        parts = [_arrays(*each) for each in pairwise(cuts)]
        return [*parts[:-1], parts[-1]._replace(**self.changed)] if split == "train" else parts


def _arrays(start: int, stop: int) -> ShardArrays:
    ids = np.arange(start, stop)
    sparse = np.stack([ids % 7, ids % 5]).astype(np.int32)
    return ShardArrays(ids % 2, (ids % 3).astype(np.float32)[:, None], sparse)


def arrays(_: TrainerConfig) -> _Arrays:
    return _Arrays()


def wide_arrays(_: TrainerConfig) -> _Arrays:
    return _Arrays(sparse=np.zeros((2, 200), np.int64))


def short_arrays(_: TrainerConfig) -> _Arrays:
    return _Arrays(dense=np.zeros((7, 1), np.float32))


def named_labels(_: TrainerConfig) -> _Arrays:
    return _Arrays(labels=np.full(200, "yes"))


def bad_arrays(_: TrainerConfig) -> _Arrays:
    return _Arrays(sparse=np.full((2, 620), 6, np.int32))


def incomplete(_: TrainerConfig) -> object:
    return object()


def _run_loader(tmp_path: Path, factory: str, **settings: Any) -> Any:
    return run_here(None, tmp_path, dataset=f"tests.trainer.test_data_formats:{factory}", **settings)


def test_a_custom_loader_trains_and_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    settings = {"deterministic": True, "lr_decay": "none"}
    whole = _run_loader(tmp_path / "whole", "good", **settings).summary
    for steps in (7, None):
        parts = _run_loader(tmp_path / "parts", "good", **settings, num_iterations=steps).summary
    assert parts["model_digest"] == whole["model_digest"]


def test_a_loader_of_arrays_is_read_as_files_are(tmp_path: Path) -> None:
    settings = {"deterministic": True, "lr_decay": "none"}
    batches = _run_loader(tmp_path / "batches", "good", **settings).summary
    stored = _run_loader(tmp_path / "stored", "arrays", shuffle=False, **settings).summary
    assert {name: stored[name] for name in ("samples_digest", "model_digest", "auc")} == {
        name: batches[name] for name in ("samples_digest", "model_digest", "auc")
    }
    whole = _run_loader(tmp_path / "whole", "arrays", **settings).summary
    for steps in (7, None):
        parts = _run_loader(tmp_path / "parts", "arrays", **settings, num_iterations=steps).summary
    assert parts["model_digest"] == whole["model_digest"] != stored["model_digest"]
    assert parts["samples_digest"] == whole["samples_digest"] == stored["samples_digest"]


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("wide_arrays", r"gave sparse as int64 \[2, 200\]; with \d+ labels it must be int32 \[2, \d+\]"),
        ("short_arrays", r"gave dense as float32 \[7, 1\]; with \d+ labels it must be float32 \[\d+, 1\]"),
        ("named_labels", r"gave labels as str\d+ \[200\]; they must be numbers"),
        ("bad_arrays", r"step \d+: C2 of sample \d+ holds the id 6; its table has 5 rows"),
    ],
)
def test_bad_arrays_of_a_loader_are_reported(tmp_path: Path, factory: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        _run_loader(tmp_path, factory)


def test_a_loader_can_return_several_ids_per_sample(tmp_path: Path) -> None:
    assert _run_loader(tmp_path / "good", "bags").code == 0
    assert _run_loader(tmp_path / "modulo", "bad_bags", hash_overflow=True).code == 0
    with pytest.raises(DatasetError, match=r"step 1: C2 of sample 24 holds the id 5; its table has 5 rows"):
        _run_loader(tmp_path / "bad", "bad_bags")


def test_a_loader_can_give_weights(tmp_path: Path) -> None:
    settings = {"deterministic": True}
    weighted = _run_loader(tmp_path / "weighted", "weighted", **settings).summary
    plain = _run_loader(tmp_path / "plain", "good", **settings).summary
    assert weighted["samples_digest"] == plain["samples_digest"]
    assert weighted["model_digest"] != plain["model_digest"]


def test_a_loader_without_resume_support_is_not_resumed(tmp_path: Path) -> None:
    assert _run_loader(tmp_path, "once", num_iterations=3).code == 0
    with pytest.raises(CheckpointError, match=r"step 3, but the loader .*:once cannot start where"):
        _run_loader(tmp_path, "once")


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("short", r"ended after 6 batches of train; 1000 rows in steps of 25 .* make 40"),
        ("wrong_type", r"gave sparse as torch.int64 \[2, 25\]; it must be torch.int32"),
        ("nan", r"step 5: I1 of sample 110 is nan; dense features must be finite"),
        ("infinite", r"step 5: I1 of sample 110 is -inf"),
        ("bad_id", r"step 5: C2 of sample 110 holds the id 99; its table has 5 rows, so ids go from 0 to 4"),
        ("negative_id", r"step 5: C2 of sample 110 holds the id -1"),
        ("bad_label", r"step 5: sample 110 has the label 0.5; labels must be 0 or 1"),
        ("bad_weight", r"step 5: sample 110 has the weight -1.0; weights must be finite numbers from 0"),
        ("wrong_weights", r"gave weights as torch.float32 \[25, 1\]; it must be torch.float32 \[25\]"),
    ],
)
def test_an_invalid_batch_stops_the_run_with_its_step_sample_and_last_checkpoint(
    tmp_path: Path, factory: str, message: str
) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        _run_loader(tmp_path, factory, checkpoint_interval=3)
    if "step 5" in message:
        assert "its batch: samples 100, 101, 102" in str(caught.value)
        assert "and 17 more; the last good checkpoint is that of step 3 in" in str(caught.value)


def test_ids_beyond_a_table_are_taken_modulo_its_rows_on_request(tmp_path: Path) -> None:
    assert _run_loader(tmp_path / "a", "bad_id", hash_overflow=True).code == 0
    assert _run_loader(tmp_path / "b", "negative_id", hash_overflow=True).code == 0
    with pytest.raises(ConfigError, match="set hash_overflow to take ids modulo the rows"):
        _run_loader(tmp_path / "c", "good", num_embeddings=4)
    assert _run_loader(tmp_path / "c", "good", num_embeddings=4, hash_overflow=True).code == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataset": "nothing"}, "it must be MODULE:FACTORY"),
        ({"dataset": "no_such_module:make"}, "No module named 'no_such_module'"),
        ({"dataset": "math:make"}, "has no attribute 'make'"),
        ({"dataset": "tests.trainer.test_data_formats:incomplete"}, "lacks dense_features, sparse_features"),
        ({"dataset": "a:b", "dataset_path": "c"}, "are both set; give one of them"),
    ],
)
def test_unavailable_loaders_are_reported(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_source(make_config(settings))


def test_synthetic_samples_depend_only_on_their_position(tmp_path: Path) -> None:
    settings = {"dataset": "trainer.data.synthetic:made_up", "num_embeddings": 50, "batch_size": 64}
    whole = run_here(None, tmp_path / "whole", num_iterations=6, **settings).summary
    assert whole["samples_seen"] == 6 * 64
    for steps in (2, 6):
        parts = run_here(None, tmp_path / "parts", num_iterations=steps, lr_decay="none", **settings).summary
    unbroken = run_here(None, tmp_path / "same", num_iterations=6, lr_decay="none", **settings).summary
    for key in ("samples_digest", "model_digest"):
        assert parts[key] == unbroken[key]
