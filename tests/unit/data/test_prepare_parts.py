"""Files that are prepared in parts have the bytes of a preparation on one machine."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.cli.main import run as cloudrec
from cloudrec.data.check import check
from cloudrec.data.known_vocabulary import load
from cloudrec.data.prepare.folder import claimed
from cloudrec.data.prepare.many.parts import make_job, prepare_parts, unseen
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.data.prepare.table_files import find_tables
from cloudrec.data.prepare.table_pipeline import TablePreparation, schema_like
from cloudrec.errors import DataError
from cloudrec_contract.features import parse
from tests.unit.data.test_features import SCHEMA, made

FILES = 4


class Twice:
    """Runs each task here, twice, as if its machine was lost after its work; the last file's come first."""

    def run(self, task: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
        found = [[task(*each), task(*each)][1] for each in reversed(arguments)]
        return found[::-1]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of different sizes; the third has a bad row."""
    folder = tmp_path_factory.mktemp("parts")
    for number in range(FILES):
        rows = made(seed=number, rows=1_000 + 333 * number)
        if number == 2:
            rows["clicked"][5] = None
        pq.write_table(pa.table(rows), folder / f"{number}.parquet")
    return folder


def in_parts(source: Path, out: Path, options: PrepareOptions) -> Path:
    known = None if options.like is None else load(options.like)
    schema = parse(SCHEMA) if known is None else schema_like(known, None)
    files = find_tables([str(source)])
    with claimed(out, overwrite=False) as workspace:
        head = TablePreparation(workspace, options, files, schema, progress=lambda _done, _total: None)
        job = make_job(out, options, files, schema, ())
        assert unseen(job) == []
        content = prepare_parts(job, head, Twice(), known=known, progress=lambda _done, _total: None)
        workspace.commit(content, head.bad_rows)
    return out


def contents(dataset: Path) -> dict[str, bytes]:
    """Every file but dataset.json, which has the time."""
    found = {path.relative_to(dataset).as_posix(): path for path in dataset.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name not in ("dataset.json", ".lock")}


def described(dataset: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((dataset / "dataset.json").read_text())
    del document["created"]
    return document


@pytest.mark.parametrize("shard_rows", [500, 1_700, 100_000])
@pytest.mark.parametrize("test_fraction", [0.1, 0.0])
def test_parts_have_the_bytes_of_one_machine(
    source: Path, tmp_path: Path, shard_rows: int, test_fraction: float
) -> None:
    options = PrepareOptions(shard_rows=shard_rows, test_fraction=test_fraction, max_bad_rows=1)
    prepare(str(source), tmp_path / "one", options=options, schema=parse(SCHEMA))
    many = in_parts(source, tmp_path / "many", options)
    assert contents(many) == contents(tmp_path / "one")
    assert described(many) == described(tmp_path / "one")
    assert described(many)["bad_rows"] == 1
    assert check(many, deep=True).rows == sum(1_000 + 333 * number for number in range(FILES)) - 1


def test_parts_use_an_existing_vocabulary(source: Path, tmp_path: Path) -> None:
    prepare(str(source / "0.parquet"), tmp_path / "first", schema=parse(SCHEMA))
    options = PrepareOptions(like=str(tmp_path / "first"), shard_rows=700, max_bad_rows=1)
    prepare(str(source), tmp_path / "one", options=options)
    many = in_parts(source, tmp_path / "many", options)
    assert contents(many) == contents(tmp_path / "one")
    assert described(many) == described(tmp_path / "one")


def test_folders_of_splits_need_no_count_of_rows(source: Path, tmp_path: Path) -> None:
    for number in range(FILES):
        folder = tmp_path / "rows" / ("test" if number == 1 else "train")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / f"{number}.parquet", folder)
    options = PrepareOptions(shard_rows=900, max_bad_rows=1)
    prepare(str(tmp_path / "rows"), tmp_path / "one", options=options, schema=parse(SCHEMA))
    many = in_parts(tmp_path / "rows", tmp_path / "many", options)
    assert contents(many) == contents(tmp_path / "one")


def test_bad_rows_of_all_parts_together_are_limited(source: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2\.parquet:6: the label clicked is not 0 or 1"):
        in_parts(source, tmp_path / "many", PrepareOptions())
    assert not (tmp_path / "many" / "dataset.json").exists()


def test_values_of_all_parts_together_are_limited(source: Path, tmp_path: Path) -> None:
    options = PrepareOptions(max_vocabulary=120, max_bad_rows=1)
    with pytest.raises(DataError, match="people has more than 120 different values"):
        in_parts(source, tmp_path / "many", options)


def test_a_path_that_a_machine_does_not_see_is_named(source: Path, tmp_path: Path) -> None:
    files = find_tables([str(source)])
    job = make_job(tmp_path / "out", PrepareOptions(), files, parse(SCHEMA), ())
    assert unseen(job) == [str(tmp_path / "out")]
    changed = [files[0]._replace(bytes=1), files[1]._replace(path=tmp_path / "none.parquet")]
    job = make_job(tmp_path / "out", PrepareOptions(), changed, parse(SCHEMA), ())
    assert unseen(job)[1:] == [str(files[0].path), str(tmp_path / "none.parquet")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--on", "http://head:8265"], "it must be ray://HOST:PORT, or auto"),
        (["--on", "ray://head"], "Ray's own port for clients is 10001"),
    ],
)
def test_an_address_of_another_form_is_refused(
    source: Path, tmp_path: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "features.yaml").write_text(json.dumps(SCHEMA))
    command = ["data", "prepare", str(source), str(tmp_path / "out")]
    assert cloudrec([*command, "--features", str(tmp_path / "features.yaml"), *options]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_ray_is_an_extra_whose_absence_is_a_clear_error(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    (tmp_path / "features.yaml").write_text(json.dumps(SCHEMA))
    command = ["data", "prepare", str(source), str(tmp_path / "out"), "--on", "ray://head:10001"]
    assert cloudrec([*command, "--features", str(tmp_path / "features.yaml")]) == 3
    assert "cloudrec[ray]" in capsys.readouterr().err


def test_criteos_files_are_refused_on_many_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.tsv").write_text("0\n")
    assert (
        cloudrec(["data", "prepare", str(tmp_path / "rows.tsv"), str(tmp_path / "out"), "--on", "auto"]) == 2
    )
    assert "--on prepares tables with a feature schema" in capsys.readouterr().err
