from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tests.trainer.support_runs import run_here
from trainer.base.arguments import make_config
from trainer.base.errors import DatasetError
from trainer.commands.plan import main
from trainer.data.formats.open import open_source

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.data.batch import Batch
    from trainer.data.source import SampleSource

TABLE, FEATURES = 40, 26
HOTNESS = tuple(1 + index % 4 for index in range(FEATURES))
ONE_HOT = (1,) * FEATURES


def _write_days(
    directory: Path, *, hotness: tuple[int, ...] = HOTNESS, days: int = 3, rows: int = 100
) -> list[list[np.ndarray[Any, Any]]]:
    """Days of `rows`, one more each day; the ids by day and feature."""
    directory.mkdir(exist_ok=True)
    random = np.random.default_rng(0)
    written = []
    for day in range(days):
        size = rows + day
        written.append([random.integers(0, TABLE, (size, hot), dtype=np.int32) for hot in hotness])
        np.save(directory / f"day_{day}_dense.npy", random.random((size, 13), dtype=np.float32))
        np.save(directory / f"day_{day}_labels.npy", random.integers(0, 2, (size, 1), dtype=np.int32))
        _save(directory, day, written[-1])
    return written


def _save(directory: Path, day: int, ids: list[np.ndarray[Any, Any]]) -> None:
    arrays: dict[str, Any] = {str(index): array for index, array in enumerate(ids)}
    np.savez(directory / f"day_{day}_sparse_multi_hot.npz", **arrays)


def _open(directory: Path, **settings: Any) -> SampleSource:
    return open_source(make_config({"dataset_path": str(directory), **settings}))


def _batches(source: SampleSource, split: str, **settings: Any) -> list[Batch]:
    return list(source.batches(split, **{"batch_size": 16, "rank": 0, "world_size": 1, **settings}))


def _bags(batch: Batch) -> list[list[list[int]]]:
    """Ids by feature and sample."""
    assert batch.lengths is not None
    parts = iter(batch.sparse.split(batch.lengths.flatten().tolist()))
    return [[next(parts).tolist() for _ in range(len(batch))] for _ in range(FEATURES)]


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_sample_comes_with_all_its_ids(tmp_path: Path, shuffle: bool) -> None:  # noqa: FBT001 - a parameter of pytest's
    days = _write_days(tmp_path)
    source = _open(tmp_path)
    assert (source.train.rows, source.test.rows) == (201, 51)
    seen = []
    for batch in _batches(source, "train", shuffle=shuffle, seed=3):
        bags = _bags(batch)
        for place, sample in enumerate(batch.sample_ids.tolist()):
            day, row = divmod(sample, 100) if sample < 100 else (1, sample - 100)
            assert [bags[f][place] for f in range(FEATURES)] == [ids[row].tolist() for ids in days[day]]
            seen.append(sample)
    assert sorted(seen) == list(range(201))
    assert (seen == sorted(seen)) is not shuffle
    (first, *_) = _batches(source, "test")
    assert _bags(first)[3][5] == days[2][3][5].tolist()


def test_ranks_share_the_samples(tmp_path: Path) -> None:
    _write_days(tmp_path)
    source = _open(tmp_path)
    (alone,) = _batches(source, "train", batch_size=201)
    parts = [_batches(source, "train", batch_size=101, rank=rank, world_size=2)[0] for rank in range(2)]
    halves = zip(*(_bags(part) for part in parts), strict=True)
    assert [[*first, *second] for first, second in halves] == _bags(alone)


def test_tables_have_the_size_that_the_ids_need(tmp_path: Path) -> None:
    days = _write_days(tmp_path)
    days[1][7][50, 2] = 90
    days[2][9][101, 1] = 95  # in the half that no one reads
    for day in (1, 2):
        _save(tmp_path, day, days[day])
    sizes = _open(tmp_path).num_embeddings
    assert sizes["C8"] == 91
    assert _open(tmp_path, num_embeddings=77).num_embeddings["C8"] == 77


def test_single_ids_are_read_and_trained_on_like_one_hot_files(tmp_path: Path) -> None:
    days = _write_days(tmp_path / "several", hotness=ONE_HOT)
    (tmp_path / "one").mkdir()
    for path in (tmp_path / "several").glob("*.npy"):
        (tmp_path / "one" / path.name).write_bytes(path.read_bytes())
    for day, ids in enumerate(days):
        np.save(tmp_path / "one" / f"day_{day}_sparse.npy", np.concatenate(ids, axis=1))
    pairs = zip(
        *(_batches(_open(tmp_path / name), "train", shuffle=True) for name in ("several", "one")), strict=True
    )
    for several, one in pairs:
        assert torch.equal(several.sparse, one.sparse)
        assert several.lengths is one.lengths is None
    digests = [
        run_here(tmp_path / name, tmp_path / f"{name}-run", deterministic=True).summary["model_digest"]
        for name in ("several", "one")
    ]
    assert digests[0] == digests[1]


def test_a_run_trains_on_multi_hot_ids_and_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    _write_days(tmp_path / "data")
    settings = {"deterministic": True, "lr_decay": "none"}
    whole = run_here(tmp_path / "data", tmp_path / "whole", **settings).summary
    for steps in (3, None):
        parts = run_here(tmp_path / "data", tmp_path / "parts", **settings, num_iterations=steps).summary
    assert parts["model_digest"] == whole["model_digest"]
    assert whole["samples_seen"] == 201


def test_invalid_ids_and_small_tables_are_reported_like_one_hot_ones(tmp_path: Path) -> None:
    days = _write_days(tmp_path / "data")
    with pytest.raises(
        DatasetError, match=r"step 1: C1 of sample \d+ holds the id \d+; its table has 4 rows"
    ):
        run_here(tmp_path / "data", tmp_path / "a", num_embeddings=4)
    days[0][6][3, 2] = -5
    _save(tmp_path / "data", 0, days[0])
    with pytest.raises(DatasetError, match=r"step 1: C7 of sample 3 holds the id -5"):
        run_here(tmp_path / "data", tmp_path / "b", shuffle=False)
    assert run_here(tmp_path / "data", tmp_path / "c", num_embeddings=9, hash_overflow=True).code == 0


def _drop(directory: Path, _: list[np.ndarray[Any, Any]]) -> None:
    (directory / "day_1_sparse_multi_hot.npz").unlink()


def _compress(directory: Path, ids: list[np.ndarray[Any, Any]]) -> None:
    arrays: dict[str, Any] = {str(index): array for index, array in enumerate(ids)}
    np.savez_compressed(directory / "day_1_sparse_multi_hot.npz", **arrays)


def _truncate(directory: Path, _: list[np.ndarray[Any, Any]]) -> None:
    path = directory / "day_1_sparse_multi_hot.npz"
    path.write_bytes(path.read_bytes()[:-100])


def _lie_about_rows(directory: Path, ids: list[np.ndarray[Any, Any]]) -> None:
    with zipfile.ZipFile(directory / "day_1_sparse_multi_hot.npz", "w") as archive:
        for index in range(FEATURES):
            np.save(directory / "member.npy", ids[index])
            data = (directory / "member.npy").read_bytes()
            archive.writestr(f"{index}.npy", data.replace(b"(101, ", b"(901, ") if index == 25 else data)
    (directory / "member.npy").unlink()


def _both(directory: Path, _: list[np.ndarray[Any, Any]]) -> None:
    np.save(directory / "day_1_sparse.npy", np.zeros((101, 26), np.int32))


def _replace(index: int, array: np.ndarray[Any, Any]) -> Any:
    return lambda directory, ids: _save(directory, 1, [*ids[:index], array, *ids[index + 1 :]])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_drop, r"day_1_sparse_multi_hot\.npz: missing, though other files of that day are there"),
        (_compress, r"day_1_.*the array '0' is compressed.*write the archive with numpy\.savez"),
        (_truncate, r"day_1_sparse_multi_hot\.npz: cannot be mapped"),
        (_lie_about_rows, r"day_1_.*the array '25' is cut off"),
        (_both, r"holds both day_N_sparse\.npy and day_N_sparse_multi_hot\.npz"),
        (_replace(4, np.zeros((101, 1), np.int64)), r"the array '4' holds int64 \[101, 1\], not int32"),
        (_replace(4, np.zeros(101, np.int32)), r"the array '4' holds int32 \[101\], not int32 \[rows"),
        (_replace(4, np.zeros((99, 1), np.int32)), "the array '4' has 99 rows, but '0' has 101"),
        (_replace(4, np.zeros((101, 2), np.int32)), "day 0 has 1 ids a row for C5, but day 1 has 2"),
        (lambda directory, ids: _save(directory, 1, ids[:25]), r"lacks the array '25' \(1 are missing\)"),
        (
            lambda directory, ids: _save(directory, 1, [array[:50] for array in ids]),
            "101 rows, but 101 in its dense and 50 in its sparse file",
        ),
    ],
)
def test_inconsistent_archives_are_named(tmp_path: Path, spoil: Any, message: str) -> None:
    days = _write_days(tmp_path)
    spoil(tmp_path, days[1])
    with pytest.raises(DatasetError, match=message):
        _open(tmp_path)


def test_a_multi_hot_feature_has_a_higher_cost_in_a_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, hotness in (("one", ONE_HOT), ("many", (40, *ONE_HOT[1:]))):
        _write_days(tmp_path / name, hotness=hotness)
        words = ["--world_size", "2", "--target", "cpu", "--sharding_types", "table_wise", "--json"]
        assert main([*words, "--dataset_path", str(tmp_path / name)]) == 0
        tables = json.loads(capsys.readouterr().out)["tables"]
        ranks = [tables[f"C{index + 1}"]["shards"][0]["rank"] for index in range(FEATURES)]
        beside_the_first = ranks.count(ranks[0])
        assert beside_the_first == 13 if name == "one" else beside_the_first < 10


def test_opening_reads_only_headers(tmp_path: Path) -> None:
    """Ids are mapped: what is written into the file afterwards is what is read."""
    days = _write_days(tmp_path)
    source = _open(tmp_path, num_embeddings=TABLE)
    path = tmp_path / "day_0_sparse_multi_hot.npz"
    data = bytearray(path.read_bytes())
    place = data.index(days[0][3].tobytes())
    data[place : place + 4] = np.int32(39 - days[0][3][0, 0]).tobytes()
    with path.open("r+b") as file:
        file.write(data)
    (first, *_) = _batches(source, "train")
    assert _bags(first)[3][0][0] == 39 - days[0][3][0, 0]
