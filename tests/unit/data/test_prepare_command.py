"""Every option of `cloudrec data prepare`, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from cloudrec.cli.commands.data import prepare
from cloudrec.cli.main import run
from tests.unit.data.support_rows import good_text, load

BAD = b"2" + b"\t" * 39 + b"\n"
EVERY_ID = ("--min-frequency", "1")
TRIED = {
    "--encoding",
    "--features",
    "--forget-after",
    "--grow",
    "--hash-buckets",
    "--like",
    "--max-bad-rows",
    "--labels",
    "--max-vocabulary",
    "--min-frequency",
    "--on",
    "--output",
    "--overwrite",
    "--seed",
    "--test-fraction",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "rows.tsv"
    path.write_bytes(good_text(400))
    return path


def prepared(source: Path, out: Path, *options: str) -> dict[str, Any]:
    """Prepare through the command line; return dataset.json."""
    assert run(["data", "prepare", str(source), str(out), *options]) == 0
    content: dict[str, Any] = json.loads((out / "dataset.json").read_text())
    return content


def test_every_option_of_the_command_has_a_test() -> None:
    documented = {name for each in prepare.params if isinstance(each, click.Option) for name in each.opts}
    assert {name for name in documented if name.startswith("--")} == TRIED


def test_only_another_datasets_vocabulary_grows(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "prepare", str(source), str(tmp_path / "out"), "--grow"]) == 2
    assert "--like names none" in capsys.readouterr().err
    prepared(source, tmp_path / "first")
    like = ["--like", str(tmp_path / "first")]
    assert run(["data", "prepare", str(source), str(tmp_path / "out"), *like, "--forget-after", "3"]) == 2
    assert "--forget-after is for a vocabulary that grows" in capsys.readouterr().err
    prepared(source, tmp_path / "hashed", "--encoding", "hash")
    like = ["--like", str(tmp_path / "hashed")]
    assert run(["data", "prepare", str(source), str(tmp_path / "out"), *like, "--grow"]) == 2
    assert "hashes its categories" in capsys.readouterr().err


def test_bad_rows_up_to_the_limit_are_skipped_and_listed(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.write_bytes(good_text(200) + BAD + good_text(200))
    content = prepared(source, tmp_path / "out", "--max-bad-rows", "1")
    printed = capsys.readouterr()
    assert (content["rows"], content["bad_rows"]) == (400, 1)
    assert f"bad row {source}:201: the label is not 0 or 1: '2'" in printed.err
    assert "1 bad rows left out" in printed.out


def test_one_bad_row_more_than_the_limit_is_refused(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.write_bytes(good_text(200) + BAD + BAD)
    assert run(["data", "prepare", str(source), str(tmp_path / "out"), "--max-bad-rows", "1"]) == 2
    assert f"{source}:202: the label is not 0 or 1" in capsys.readouterr().err
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_the_json_document_names_the_bad_rows(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.write_bytes(good_text(200) + BAD)
    prepared(source, tmp_path / "out", "--max-bad-rows", "1", "--output", "json")
    dataset = json.loads(capsys.readouterr().out)["dataset"]
    (bad,) = dataset["first_bad_rows"]
    assert bad == {"path": str(source), "line": 201, "reason": "the label is not 0 or 1", "value": "2"}
    assert json.loads((tmp_path / "out" / "bad_rows.jsonl").read_text()) == bad
    assert dataset["num_embeddings_per_feature"].keys() == {f"C{number}" for number in range(1, 27)}


def test_hash_encoding_uses_the_requested_number_of_rows_per_table(source: Path, tmp_path: Path) -> None:
    options = ("--encoding", "hash", "--hash-buckets", "9")
    content = prepared(source, tmp_path / "out", *options)
    assert content["encoding"]["mapping"]["kind"] == "hash"
    assert set(content["num_embeddings_per_feature"].values()) == {9}
    assert load(tmp_path / "out", "train")[2].max() <= 8


def test_like_uses_the_encoding_of_another_dataset(source: Path, tmp_path: Path) -> None:
    encoding = prepared(source, tmp_path / "first", *EVERY_ID)["encoding"]
    source.write_bytes(good_text(100, seed=1, codes=5))
    assert prepared(source, tmp_path / "apart", *EVERY_ID)["encoding"] != encoding
    assert prepared(source, tmp_path / "like", "--like", str(tmp_path / "first"))["encoding"] == encoding


def test_values_rarer_than_the_minimum_share_one_id(source: Path, tmp_path: Path) -> None:
    every = prepared(source, tmp_path / "every", *EVERY_ID)["num_embeddings_per_feature"]
    frequent = prepared(source, tmp_path / "frequent", "--min-frequency", "30")["num_embeddings_per_feature"]
    assert sum(frequent.values()) < sum(every.values())


def test_rows_without_a_label_are_prepared_on_request_and_called_so(source: Path, tmp_path: Path) -> None:
    labelled = prepared(source, tmp_path / "labelled")
    source.write_bytes(b"".join(line[2:] for line in source.read_bytes().splitlines(keepends=True)))
    assert run(["data", "prepare", str(source), str(tmp_path / "refused")]) == 2
    found = prepared(source, tmp_path / "out", "--labels", "optional")
    assert found["labels"] is False
    assert "labels" not in labelled
    assert found["encoding"] == labelled["encoding"]
    assert found["splits"]["train"]["positives"] == 0
    assert run(["data", "check", str(tmp_path / "out"), "--deep"]) == 0


def test_several_sources_are_one_dataset(source: Path, tmp_path: Path) -> None:
    (tmp_path / "more.tsv").write_bytes(good_text(100, seed=1))
    words = ["data", "prepare", str(source), str(tmp_path / "more.tsv"), str(tmp_path / "out")]
    assert run(words) == 0
    sources = json.loads((tmp_path / "out" / "dataset.json").read_text())["sources"]
    assert [(Path(each["path"]).name, each["rows"]) for each in sources] == [
        ("rows.tsv", 400),
        ("more.tsv", 100),
    ]


def test_a_feature_with_more_values_than_the_limit_is_refused(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "prepare", str(source), str(tmp_path / "out"), "--max-vocabulary", "5"]) == 2
    assert "hash" in capsys.readouterr().err
    prepared(source, tmp_path / "out", "--max-vocabulary", "1000")


def test_the_share_of_held_out_rows_is_as_requested(source: Path, tmp_path: Path) -> None:
    splits = prepared(source, tmp_path / "out", "--test-fraction", "0.5")["splits"]
    assert 150 < splits["test"]["rows"] < 250
    assert prepared(source, tmp_path / "all", "--test-fraction", "0")["splits"]["test"]["rows"] == 0


def test_another_seed_holds_out_other_rows(source: Path, tmp_path: Path) -> None:
    prepared(source, tmp_path / "zero")
    prepared(source, tmp_path / "seven", "--seed", "7")
    prepared(source, tmp_path / "again", "--seed", "7")
    zero, seven, again = (load(tmp_path / name, "test")[1] for name in ("zero", "seven", "again"))
    assert not np.array_equal(zero, seven)
    assert np.array_equal(seven, again)


def test_a_dataset_is_replaced_only_with_overwrite(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared(source, tmp_path / "out")
    source.write_bytes(good_text(100))
    assert run(["data", "prepare", str(source), str(tmp_path / "out")]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert prepared(source, tmp_path / "out", "--overwrite")["rows"] == 100


def test_features_names_a_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text(
        "clicked,price,city\n" + "1,2.5,Köln\n0,,Bonn\n" * 40, encoding="utf-8"
    )
    (tmp_path / "f.yaml").write_text("label: clicked\ndense: [price]\nsparse: [city]\n")
    content = prepared(tmp_path / "rows.csv", tmp_path / "out", "--features", str(tmp_path / "f.yaml"))
    assert (content["dense_features"], content["sparse_features"]) == (["price"], ["city"])
    assert content["num_embeddings_per_feature"] == {"city": 4}
    assert "tables of 4 rows" in capsys.readouterr().out


SPEC = "features:\n  label: clicked\n  dense: [price]\n  sparse: [city]\n"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{n % 2},{n},{'ab'[n % 2]}\n" for n in range(40))
    (tmp_path / "rows.csv").write_text(f"clicked,price,city\n{rows}")
    return tmp_path / "rows.csv"


def test_the_features_of_cloudrec_yaml_are_used(table: Path, tmp_path: Path) -> None:
    (tmp_path / "cloudrec.yaml").write_text(SPEC)
    content = prepared(table, tmp_path / "out")
    assert (content["dense_features"], content["sparse_features"]) == (["price"], ["city"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("features: [label]\n", "features"),
        ("features: {dense: [price]}\n", "label"),
        ("features: {label: clicked, sparse: [citty]}\n", "city"),
    ],
)
def test_wrong_features_of_cloudrec_yaml_are_refused(
    table: Path, tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cloudrec.yaml").write_text(text)
    assert run(["data", "prepare", str(table), str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl"])
def test_a_table_without_a_schema_is_refused_with_the_option_to_take(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(b"PAR1 or {}")
    assert run(["data", "prepare", name, "out"]) == 2
    assert "--features FILE" in capsys.readouterr().err


def test_a_csv_without_a_schema_is_refused_with_the_option_to_take(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "prepare", str(table), "out"]) == 2
    assert "--features FILE" in capsys.readouterr().err
