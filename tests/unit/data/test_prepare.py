from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudrec.data.check import check
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import PrepareReport, prepare
from cloudrec.errors import BusyError, DataError, StorageError, UsageError
from tests.unit.data import support_reference as reference
from tests.unit.data.support_rows import good_line, good_text, load

BAD = b"2" + b"\t" * 39


def run(source: Path | str, out: Path, **options: Any) -> PrepareReport:
    return prepare(str(source), out, options=PrepareOptions(**options))


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def left_behind(out: Path) -> list[str]:
    return sorted(p.name for p in out.iterdir() if p.name != ".lock") if out.exists() else []


def assert_holds(out: Path, split: str, rows: list[reference.Row], by_feature: list[dict[int, int]]) -> None:
    labels, dense, sparse = load(out, split)
    assert labels.tolist() == [r.label for r in rows]
    np.testing.assert_allclose(dense, np.array([reference.dense(r) for r in rows]), rtol=1e-6, atol=1e-7)
    assert sparse.T.tolist() == [reference.ids(r, by_feature) for r in rows]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two training files and one of held-out rows."""
    root = tmp_path_factory.mktemp("rows")
    write(root / "train" / "part-0.tsv.gz", good_text(300, seed=1))
    write(root / "train" / "part-1.tsv", good_text(200, seed=2))
    write(root / "test" / "part-0.tsv.gz", good_text(100, seed=3))
    return root


def test_rows_come_back_in_order_with_ids_by_training_frequency(folders: Path, tmp_path: Path) -> None:
    report = run(folders, tmp_path / "out", shard_rows=128, min_frequency=5)

    train, _ = reference.read(good_text(300, seed=1) + good_text(200, seed=2))
    test, _ = reference.read(good_text(100, seed=3))
    by_feature = reference.vocabularies(train, 5)
    assert_holds(tmp_path / "out", "train", train, by_feature)
    assert_holds(tmp_path / "out", "test", test, by_feature)
    assert (report.rows, report.train_rows, report.test_rows, report.bad_rows) == (600, 500, 100, 0)
    assert list(report.num_embeddings_per_feature.values()) == [len(ids) + 2 for ids in by_feature]
    assert left_behind(tmp_path / "out") == ["dataset.json", "test", "train", "vocabulary"]
    check(tmp_path / "out", deep=True)


@pytest.mark.parametrize("encoding", ["vocabulary", "hash"])
def test_chunks_threads_and_shards_change_nothing(folders: Path, tmp_path: Path, encoding: str) -> None:
    source = folders / "train" / "part-*"
    plain = run(source, tmp_path / "plain", encoding=encoding, test_fraction=0.2, seed=5)
    cut = run(
        source, tmp_path / "cut", encoding=encoding, test_fraction=0.2, seed=5, chunk_bytes=700, threads=3
    )
    run(source, tmp_path / "split", encoding=encoding, test_fraction=0.2, seed=5, shard_rows=17)

    assert plain.digest == cut.digest
    for split in ("train", "test"):
        for one, other in zip(load(tmp_path / "plain", split), load(tmp_path / "split", split), strict=True):
            assert np.array_equal(one, other)


@settings(max_examples=25, deadline=None)
@given(
    lines=st.lists(st.one_of(st.integers(0, 40), st.just(None)), min_size=1, max_size=60),
    chunk_bytes=st.integers(1, 3000),
    shard_rows=st.integers(1, 40),
    ending=st.sampled_from([b"\n", b"\r\n"]),
    finished=st.booleans(),
)
def test_any_chunk_boundary_gives_the_result_of_the_reference_reader(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[int | None],
    chunk_bytes: int,
    shard_rows: int,
    ending: bytes,
    *,
    finished: bool,
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    source = random.Random(len(lines))  # noqa: S311 - rows, not secrets
    drawn = [
        good_line(source),
        *(BAD if n is None else b"0" * 9000 if n == 0 else good_line(source) for n in lines),
    ]
    text = ending.join(drawn) + (ending if finished else b"")
    rows, bad = reference.read(text)
    path = write(folder / "rows.tsv", text)

    report = run(
        path,
        folder / "out",
        chunk_bytes=chunk_bytes,
        shard_rows=shard_rows,
        max_bad_rows=len(lines),
        test_fraction=0.0,
        min_frequency=2,
    )

    assert_holds(folder / "out", "train", rows, reference.vocabularies(rows, 2))
    assert [row.line for row in report.first_bad_rows] == bad[:20]
    assert report.bad_rows == len(bad)
    kept = folder / "out" / "bad_rows.jsonl"
    noted = [json.loads(line) for line in kept.read_text().splitlines()] if bad else []
    assert [(n["path"], n["line"]) for n in noted] == [(str(path), line) for line in bad]


def test_held_out_rows_have_the_requested_share_and_depend_on_the_seed(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.tsv", good_text(3000))

    shares = [run(path, tmp_path / str(s), test_fraction=0.25, seed=s).test_rows for s in (0, 1)]

    assert all(650 < share < 850 for share in shares)
    assert not np.array_equal(load(tmp_path / "0", "test")[1], load(tmp_path / "1", "test")[1])


def test_hash_ids_are_below_the_bucket_count_and_reserve_zero_for_missing(
    folders: Path, tmp_path: Path
) -> None:
    run(folders, tmp_path / "out", encoding="hash", hash_buckets=7)

    rows, _ = reference.read(good_text(100, seed=3))
    missing = np.array([[c is None for c in r.categories] for r in rows])
    sparse = load(tmp_path / "out", "test")[2].T
    assert sparse.max() == 6
    assert np.array_equal(sparse == 0, missing)


def test_progress_ends_at_the_total_file_size(folders: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    total = sum(p.stat().st_size for p in folders.rglob("part-*"))

    options = PrepareOptions(chunk_bytes=1000)
    prepare(
        str(folders), tmp_path / "out", options=options, progress=lambda done, of: seen.append((done, of))
    )

    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


def test_too_many_bad_rows_are_refused_with_the_first_row_over_the_limit(tmp_path: Path) -> None:
    text = good_text(50) + BAD + b"\n" + good_text(50) + BAD + b"\n"
    path = write(tmp_path / "rows.tsv", text)

    with pytest.raises(DataError) as first:
        run(path, tmp_path / "out")
    with pytest.raises(DataError) as second:
        run(path, tmp_path / "out", max_bad_rows=1)

    assert str(first.value) == f"{path}:51: the label is not 0 or 1: '2'"
    assert str(second.value) == f"{path}:102: the label is not 0 or 1: '2' (more than the 1 allowed)"
    assert "--max-bad-rows" in str(first.value.remedy)
    assert left_behind(tmp_path / "out") == []
    assert run(path, tmp_path / "out", max_bad_rows=2).bad_rows == 2


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("rows.tsv", b"", "is empty"),
        ("rows.tsv.gz", gzip.compress(b"", mtime=0), "there are no training rows"),
        ("rows.tsv.gz", gzip.compress(good_text(400), mtime=0)[:-20], "beyond line"),
        ("rows.tsv.gz", gzip.compress(good_text(400), mtime=0)[:-4], "it ends in the middle"),
        ("rows.tsv.gz", b"this is no gzip file\n", "is not a gzip file"),
        ("rows.tsv.gz", gzip.compress(good_text(400), mtime=0)[:3000] + b"\0" * 3000, "cannot read"),
        ("rows.tsv", b"\xff\xfe" * 100, "not ASCII"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)

    with pytest.raises(DataError, match=message) as caught:
        run(path, tmp_path / "out")

    assert name in str(caught.value) or "training rows" in str(caught.value)
    assert caught.value.remedy
    assert left_behind(tmp_path / "out") == []


def test_a_file_of_bad_rows_only_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.tsv", (BAD + b"\n") * 5)

    with pytest.raises(
        DataError, match=r"no good training rows; of 5 bad ones the first is .*rows.tsv:1: the label"
    ):
        run(path, tmp_path / "out", max_bad_rows=100)


@pytest.mark.parametrize("source", ["nowhere", "nowhere/*.tsv", "folder", "split"])
def test_an_empty_source_is_refused(tmp_path: Path, source: str) -> None:
    (tmp_path / "folder").mkdir()
    write(tmp_path / "folder" / "notes.md", b"no rows")
    (tmp_path / "split" / "train").mkdir(parents=True)

    with pytest.raises(DataError) as caught:
        run(tmp_path / source, tmp_path / "out")

    assert source in str(caught.value)
    assert caught.value.remedy


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.tsv", good_text(5))
    path.chmod(0)

    with pytest.raises(DataError, match="permission denied"):
        run(path, tmp_path / "out")


def test_held_out_rows_without_training_rows_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "train" / "rows.tsv", BAD + b"\n")
    write(tmp_path / "test" / "rows.tsv", good_text(5))

    with pytest.raises(DataError, match="the label is not 0 or 1"):
        run(tmp_path, tmp_path / "out")
    with pytest.raises(DataError, match="no good training rows"):
        run(tmp_path, tmp_path / "out", max_bad_rows=5)


def test_a_dataset_is_replaced_only_on_request_and_only_by_a_complete_one(
    folders: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    before = run(folders, out, shard_rows=10)
    broken = write(tmp_path / "rows.tsv", good_text(50) + BAD + b"\n")

    with pytest.raises(DataError, match="holds a dataset already"):
        run(folders, out)
    with pytest.raises(DataError, match="label"):
        run(broken, out, overwrite=True)
    assert check(out, deep=True).digest == before.digest

    (out / "notes.txt").write_text("mine")
    after = run(folders / "train", out, overwrite=True)
    assert check(out, deep=True).digest == after.digest
    assert left_behind(out) == ["dataset.json", "notes.txt", "test", "train", "vocabulary"]
    assert len(list((out / "train").iterdir())) == 3


def test_an_output_that_is_a_file_is_refused(folders: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")

    with pytest.raises(DataError, match="is a file"):
        run(folders, tmp_path / "out")


def test_a_concurrent_prepare_into_one_folder_is_refused(folders: Path, tmp_path: Path) -> None:
    refused: list[BaseException] = []

    def meanwhile(_done: int, _total: int | None) -> None:
        try:
            run(folders, tmp_path / "out")
        except BusyError as error:
            refused.append(error)

    prepare(str(folders), tmp_path / "out", progress=meanwhile)

    assert "in use by process" in str(refused[0])


def test_an_interrupt_leaves_no_files(folders: Path, tmp_path: Path) -> None:
    def interrupt(_done: int, _total: int | None) -> None:
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        prepare(str(folders), tmp_path / "out", progress=interrupt)

    assert left_behind(tmp_path / "out") == []
    assert not [thread for thread in set(threading.enumerate()) - before if not thread.daemon]


_CHILD = """
import resource, sys
from pathlib import Path
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
{before}
options = PrepareOptions(shard_rows=20, chunk_bytes=2000)
def progress(done, total):
    if done:
        print("started", flush=True)
        {during}
prepare(sys.argv[1], Path(sys.argv[2]), options=options, progress=progress)
"""


def child(source: Path, out: Path, *, before: str = "", during: str = "") -> subprocess.Popen[str]:
    code = _CHILD.format(before=before, during=during)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(source), str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_files_of_a_killed_prepare_are_deleted_by_the_next(folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with child(folders, out, during="import time; time.sleep(60)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGKILL)
    assert left_behind(out) == [".tmp"]
    with pytest.raises(DataError, match="no prepared dataset"):
        check(out, deep=False)

    run(folders, out)

    assert left_behind(out) == ["dataset.json", "test", "train", "vocabulary"]
    check(out, deep=True)


def test_a_write_error_is_reported_and_leaves_no_files(folders: Path, tmp_path: Path) -> None:
    small = "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"
    with child(folders, tmp_path / "out", before=small) as process:
        _, errors = process.communicate(timeout=180)

    assert StorageError.__name__ in errors
    assert "cannot write" in errors
    assert left_behind(tmp_path / "out") == []


_PEAK = """
import resource, sys
from pathlib import Path
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
options = PrepareOptions(shard_rows=4096, chunk_bytes=1 << 18, threads=2)
print(prepare(sys.argv[1], Path(sys.argv[2]), options=options).rows)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_memory_use_does_not_depend_on_the_file_size(tmp_path: Path) -> None:
    text = good_text(5000)
    peaks = []
    for times in (4, 24):
        path = write(tmp_path / f"{times}.tsv.gz", b"")
        path.write_bytes(gzip.compress(text, 1) * times)  # gzip members can be concatenated
        command = [sys.executable, "-c", _PEAK, str(path), str(tmp_path / f"out-{times}")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows, peak = map(int, done.stdout.split())
        assert rows == times * 5000
        peaks.append(peak)

    uncompressed_growth = 20 * len(text) / 2**20
    assert peaks[1] - peaks[0] < uncompressed_growth / 3


@pytest.mark.parametrize(
    "options",
    [
        {"encoding": "one-hot"},
        {"min_frequency": 0},
        {"hash_buckets": 1},
        {"test_fraction": 1.0},
        {"test_fraction": -0.1},
        {"max_bad_rows": -1},
        {"shard_rows": 0},
        {"threads": 0},
        {"max_vocabulary": 0},
    ],
)
def test_invalid_options_are_refused_with_their_limits(options: dict[str, Any]) -> None:
    ((name, value),) = options.items()

    with pytest.raises(UsageError, match=f"{name} is {value!r}; it must be"):
        PrepareOptions(**options)
