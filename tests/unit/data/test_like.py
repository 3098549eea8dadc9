"""`data prepare --like`: equal values get equal ids, and a vocabulary matches its digest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloudrec.cli.main import run as cloudrec
from cloudrec.data.check import check
from cloudrec.data.format import manifest
from cloudrec.data.format.encoding import digest_of
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.errors import DataError, UsageError
from tests.trainer.support_dataset import make_version_1
from tests.unit.data import support_reference as reference
from tests.unit.data.support_rows import good_text, load

FIRST = "vocabulary/C1.npy"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files whose values overlap."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "one.tsv").write_bytes(good_text(400, seed=1))
    (folder / "two.tsv").write_bytes(good_text(300, seed=2).replace(b"01020304", b"ABCDEF01"))
    return folder


@pytest.fixture(scope="module")
def one(sources: Path) -> Path:
    return _prepare(sources / "one.tsv", sources / "one", min_frequency=8)


def _prepare(source: Path, out: Path, **options: Any) -> Path:
    prepare(str(source), out, options=PrepareOptions(**options, shard_rows=100))
    return out


def _encoding(dataset: Path) -> dict[str, Any]:
    encoding: dict[str, Any] = json.loads((dataset / "dataset.json").read_text())["encoding"]
    return encoding


def _arrays(dataset: Path) -> dict[str, bytes]:
    return {path.relative_to(dataset).as_posix(): path.read_bytes() for path in dataset.glob("*/*.npy")}


@pytest.mark.parametrize("encoding", [{"min_frequency": 8}, {"encoding": "hash", "hash_buckets": 9}])
def test_a_file_prepared_like_its_own_dataset_has_the_same_bytes(
    sources: Path, tmp_path: Path, encoding: dict[str, Any]
) -> None:
    plain = _prepare(sources / "one.tsv", tmp_path / "plain", **encoding, seed=3)
    again = _prepare(sources / "one.tsv", tmp_path / "again", like=str(plain), seed=3)

    assert _arrays(again) == _arrays(plain)
    assert _encoding(again) == _encoding(plain)
    check(again, deep=True)


def test_known_values_keep_their_ids_and_unknown_values_get_id_1(
    sources: Path, one: Path, tmp_path: Path
) -> None:
    like = _prepare(sources / "two.tsv", tmp_path / "like", like=one.as_uri(), test_fraction=0.0)

    vocabularies = [np.load(one / f"vocabulary/C{n}.npy").tolist() for n in range(1, 27)]
    by_feature = [{code: place + 2 for place, code in enumerate(codes)} for codes in vocabularies]
    rows, _ = reference.read((sources / "two.tsv").read_bytes())
    assert load(like, "train")[2].T.tolist() == [reference.ids(row, by_feature) for row in rows]
    assert (load(like, "train")[2] == 1).any()
    assert _encoding(like) == _encoding(one)
    check(like, deep=True)


def test_values_are_case_insensitive(sources: Path, tmp_path: Path) -> None:
    lower = (sources / "two.tsv").read_bytes().lower()
    (tmp_path / "lower.tsv").write_bytes(lower)
    (tmp_path / "upper.tsv").write_bytes(lower.upper())
    plain = _prepare(tmp_path / "lower.tsv", tmp_path / "plain")
    upper = _prepare(tmp_path / "upper.tsv", tmp_path / "upper", like=str(plain))

    assert _arrays(upper) == _arrays(plain)


def test_a_dataset_can_be_overwritten_by_one_prepared_like_it(sources: Path, tmp_path: Path) -> None:
    out = _prepare(sources / "one.tsv", tmp_path / "out")
    before = _encoding(out)
    _prepare(sources / "two.tsv", out, like=str(out), overwrite=True)

    assert _encoding(out) == before
    check(out, deep=True)


def test_hashes_of_equal_parameters_have_one_digest_and_no_files(sources: Path, tmp_path: Path) -> None:
    many = {"encoding": "hash", "hash_buckets": 50}
    one, two = (_prepare(sources / f"{name}.tsv", tmp_path / name, **many) for name in ("one", "two"))
    few = _prepare(sources / "one.tsv", tmp_path / "few", encoding="hash", hash_buckets=49)

    assert _encoding(one) == _encoding(two)
    assert _encoding(one)["digest"] != _encoding(few)["digest"]
    assert not (one / "vocabulary").exists()


def test_a_vocabulary_is_deleted_when_a_dataset_without_one_replaces_it(
    sources: Path, tmp_path: Path
) -> None:
    out = _prepare(sources / "one.tsv", tmp_path / "out")
    _prepare(sources / "one.tsv", out, encoding="hash", overwrite=True)

    assert not (out / "vocabulary").exists()


def test_the_digest_does_not_depend_on_the_rows(sources: Path, tmp_path: Path) -> None:
    whole = (sources / "one.tsv").read_bytes()
    (tmp_path / "twice.tsv").write_bytes(whole * 2)
    once = _prepare(sources / "one.tsv", tmp_path / "once", min_frequency=4, test_fraction=0.0)
    twice = _prepare(tmp_path / "twice.tsv", tmp_path / "twice", min_frequency=8, test_fraction=0.0)

    assert _encoding(once)["digest"] == _encoding(twice)["digest"]


@pytest.mark.parametrize(
    "option",
    [
        ("--encoding", "vocabulary"),
        ("--min-frequency", "3"),
        ("--hash-buckets", "10"),
        ("--max-vocabulary", "9"),
    ],
)
def test_options_that_like_determines_cannot_be_combined_with_it(
    sources: Path, one: Path, *, tmp_path: Path, option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", "prepare", str(sources / "two.tsv"), str(tmp_path / "out"), "--like", str(one)]
    assert cloudrec([*words, *option]) == 2
    assert f"{option[0]} cannot be chosen" in capsys.readouterr().err
    assert cloudrec(words) == 0
    assert _encoding(one)["digest"][:12] in capsys.readouterr().out


def test_the_library_refuses_another_encoding_together_with_like() -> None:
    with pytest.raises(UsageError, match="--encoding, --hash-buckets cannot be chosen"):
        PrepareOptions(like="there", encoding="hash", hash_buckets=7)


def _edit(dataset: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((dataset / manifest.NAME).read_text())
    change(content["encoding"])
    (dataset / manifest.NAME).write_text(json.dumps(content))


def _damage(dataset: Path) -> None:
    data = bytearray((dataset / FIRST).read_bytes())
    data[-1] ^= 1
    (dataset / FIRST).write_bytes(data)


def _swap_and_sign(dataset: Path) -> None:
    """Another vocabulary, and the checksum that belongs to it."""
    codes = np.load(dataset / FIRST)
    np.save(dataset / FIRST, codes[::-1])
    import zlib  # noqa: PLC0415 - only here

    crc32 = f"{zlib.crc32((dataset / FIRST).read_bytes()):08x}"
    _edit(dataset, lambda encoding: encoding["files"]["C1"].update(crc32=crc32))


def _newer_rules(encoding: dict[str, Any]) -> None:
    encoding["mapping"]["version"] = 2
    encoding["digest"] = digest_of(encoding["mapping"])


def _without_file(encoding: dict[str, Any]) -> None:
    del encoding["mapping"]["tables"][0]["sha256"]
    encoding["digest"] = digest_of(encoding["mapping"])


@pytest.mark.parametrize(
    ("damage", "message", "deep"),
    [
        (lambda d: (d / FIRST).unlink(), "C1.npy is missing", False),
        (lambda d: (d / FIRST).write_bytes(b"x"), "C1.npy has 1 bytes, not", False),
        (_damage, "C1.npy is damaged: its crc32 is", True),
        (_swap_and_sign, "C1.npy is not the vocabulary of the encoding's digest", True),
        (lambda d: _edit(d, lambda e: e.update(digest="0" * 64)), "its digest does not fit it", False),
        (lambda d: _edit(d, lambda e: e["mapping"]["tables"][0].update(rows=9)), "does not fit it", False),
        (lambda d: _edit(d, lambda e: e.pop("mapping")), "encoding is malformed", False),
        (lambda d: _edit(d, _newer_rules), "kind 'vocabulary', version 2; this cloudrec prepares", False),
        (lambda d: _edit(d, _without_file), "encoding is malformed", False),
        (lambda d: _edit(d, lambda e: e["files"]["C1"].update(path="../x")), "outside vocabulary/", False),
        (lambda d: _edit(d, lambda e: e["files"]["C1"].update(path="test/x")), "not in vocabulary/", False),
    ],
)
def test_a_vocabulary_with_a_wrong_digest_is_detected_and_not_used(
    sources: Path,
    one: Path,
    *,
    tmp_path: Path,
    damage: Callable[[Path], None],
    message: str,
    deep: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dataset = Path(shutil.copytree(one, tmp_path / "dataset"))
    damage(dataset)

    assert cloudrec(["data", "check", str(dataset), *(["--deep"] if deep else [])]) == 2
    assert message in capsys.readouterr().err
    with pytest.raises(DataError):
        _prepare(sources / "two.tsv", tmp_path / "out", like=str(dataset))
    assert not (tmp_path / "out").exists()


def test_a_dataset_of_schema_version_1_is_valid_with_an_unknown_encoding(
    sources: Path, one: Path, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = Path(shutil.copytree(one, tmp_path / "dataset"))
    make_version_1(dataset)

    assert cloudrec(["data", "check", str(dataset), "--deep"]) == 0
    assert "encoding: unknown (schema version 1" in capsys.readouterr().out
    with pytest.raises(DataError, match="does not say how its data is encoded") as caught:
        _prepare(sources / "two.tsv", tmp_path / "out", like=str(dataset))
    assert "prepare that dataset again" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is neither a prepared dataset nor an export of a model"),
        ("[]", "does not describe an export"),
        ("{", "is not JSON"),
        ('{"format": "cloudrec-model"}', "does not say how its data is encoded"),
        ('{"format": "cloudrec-model", "encoding": {}}', "encoding is malformed"),
    ],
)
def test_like_needs_a_dataset_with_a_vocabulary(
    sources: Path, *, tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(DataError, match=message):
        _prepare(sources / "two.tsv", tmp_path / "out", like=str(tmp_path))
