from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cloudrec.data.prepare.prepare import prepare
from cloudrec_contract.features import parse
from tests.trainer.support_dataset import Rows, hash_encoding, write_dataset, write_manifest
from trainer.base.errors import DatasetError
from trainer.data.formats.prepared import PreparedDataset, Split
from trainer.data.formats.shard_files import verify_crc32

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHARD = "train/shard-00001"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data") / "set"
    write_dataset(directory, train_rows=700, test_rows=100)
    return directory


@pytest.fixture
def dataset(pristine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pristine, tmp_path / "set")


def _contents(split: Split) -> Rows:
    arrays = [split.arrays(index) for index in range(len(split.shards))]
    return Rows(
        labels=np.concatenate([shard.labels for shard in arrays]),
        dense=np.concatenate([shard.dense for shard in arrays]),
        sparse=np.concatenate([shard.sparse for shard in arrays], axis=1),
    )


def _rewrite(directory: Path, change: Callable[[dict[str, Any]], object], *, seal: bool = True) -> None:
    document = json.loads((directory / "dataset.json").read_text())
    change(document)
    if seal:
        write_manifest(directory, document)
    else:
        (directory / "dataset.json").write_text(json.dumps(document))


def _other_tables(document: dict[str, Any]) -> None:
    document["encoding"] = hash_encoding(document["num_embeddings_per_feature"] | {"C1": 51})


def _rewrite_array(directory: Path, kind: str, change: Callable[[Any], Any]) -> None:
    """Change a shard's array and make the manifest fit, as a faulty writer would."""
    path = directory / f"{SHARD}.{kind}.npy"
    np.save(path, change(np.load(path)))
    _reseal(directory, kind)


def _reseal(directory: Path, kind: str) -> None:
    import zlib  # noqa: PLC0415 - a detail of this helper

    data = (directory / f"{SHARD}.{kind}.npy").read_bytes()

    def change(document: dict[str, Any]) -> None:
        entry = document["splits"]["train"]["shards"][1]["files"][kind]
        entry.update(bytes=len(data), crc32=f"{zlib.crc32(data):08x}")

    _rewrite(directory, change)


def _refusal(directory: Path, *, verify: bool = False) -> str:
    with pytest.raises(DatasetError) as caught:
        PreparedDataset.open(str(directory), verify=verify)
    assert caught.value.exit_code == 65
    return str(caught.value)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_dataset_round_trips(tmp_path: Path, scheme: str) -> None:
    written = write_dataset(tmp_path / "a b", train_rows=700, test_rows=100)
    uri = f"{scheme}{tmp_path}/a b".replace(" ", "%20" if scheme else " ")
    dataset = PreparedDataset.open(uri, verify=True)
    assert (dataset.train.rows, dataset.test.rows) == (700, 100)
    assert dataset.num_embeddings == {f"C{i + 1}": 50 for i in range(26)}
    assert len(dataset.dense_features) == 13
    for split in (dataset.train, dataset.test):
        found, expected = _contents(split), written[split.name]
        np.testing.assert_array_equal(found.labels, expected.labels)
        np.testing.assert_array_equal(found.dense, expected.dense)
        np.testing.assert_array_equal(found.sparse, expected.sparse)
        assert split.positives == int(expected.labels.sum())


def test_a_split_can_be_empty(tmp_path: Path) -> None:
    write_dataset(tmp_path, train_rows=10, test_rows=0)
    assert PreparedDataset.open(str(tmp_path), verify=True).test.rows == 0


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://bucket/data", "scheme 's3' is not supported yet"),
        ("file://otherhost/data", "names the host 'otherhost'"),
        ("/no/such/folder", "no such folder"),
    ],
)
def test_an_unreachable_dataset_is_reported(uri: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        PreparedDataset.open(uri, verify=False)


def test_an_uncommitted_dataset_is_refused(dataset: Path) -> None:
    (dataset / "dataset.json").unlink()
    assert "holds no dataset.json" in _refusal(dataset)


def test_a_file_is_not_a_dataset(dataset: Path) -> None:
    assert "is the folder that holds dataset.json" in _refusal(dataset / "dataset.json")


@pytest.mark.parametrize("text", ["", "{", "\x00\xff", "[]", "null", '{"format": "parquet"}'])
def test_an_invalid_manifest_is_refused(dataset: Path, text: str) -> None:
    (dataset / "dataset.json").write_text(text)
    assert "dataset.json" in _refusal(dataset)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema_version=3), "schema_version is 3, this trainer reads 1 and 2"),
        (lambda d: d.pop("schema_version"), "schema_version is None"),
        (lambda d: d.pop("dense_features"), "the field 'dense_features' is missing"),
        (lambda d: d.update(sparse_features=[]), r"sparse_features is \[\]"),
        (lambda d: d.update(dense_features=["I1", "I1"]), "names a feature twice"),
        (lambda d: d["num_embeddings_per_feature"].update(C1=0), "C1 is 0"),
        (lambda d: d["num_embeddings_per_feature"].update(C27=5), "differ in C27"),
        (lambda d: d["splits"]["train"].update(rows=701), "claims 701 rows, its shards hold 700"),
        (lambda d: d["splits"]["train"].update(rows="many"), "rows is 'many'"),
        (lambda d: d["splits"].pop("test"), "the field 'test' is missing"),
        (lambda d: d["splits"]["train"]["shards"][0]["files"].pop("dense"), "the field 'dense' is missing"),
        (
            lambda d: d["splits"]["test"]["shards"][0]["files"]["dense"].update(path="../../x"),
            "lies outside",
        ),
        (lambda d: d["splits"]["test"]["shards"][0]["files"]["dense"].update(crc32="?"), "prepare"),
        (lambda d: d.pop("encoding"), "the field 'encoding' is missing"),
        (lambda d: d["encoding"]["mapping"].update(version=2), "the encoding's digest is"),
        (_other_tables, "other table sizes"),
    ],
)
def test_a_manifest_that_violates_the_contract_is_refused(
    dataset: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    _rewrite(dataset, change)
    with pytest.raises(DatasetError, match=message):
        PreparedDataset.open(str(dataset), verify=False)


def test_an_edited_manifest_is_refused(dataset: Path) -> None:
    _rewrite(dataset, lambda d: d["num_embeddings_per_feature"].update(C1=51), seal=False)
    assert "was changed after it was written" in _refusal(dataset)


def test_a_missing_or_truncated_file_is_named(dataset: Path) -> None:
    path = dataset / f"{SHARD}.dense.npy"
    data = path.read_bytes()
    path.write_bytes(data[:-4])
    assert f"{path}: {len(data) - 4} bytes, dataset.json says {len(data)}" in _refusal(dataset)
    path.unlink()
    assert f"{path}: missing" in _refusal(dataset)
    path.write_bytes(b"")
    assert f"{path}: not a readable npy file" in _refusal(dataset)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("sparse", lambda a: a.astype(np.int64), "int64 [26, 300], not int32 [26, 300]"),
        ("sparse", np.asfortranarray, "in Fortran order, not"),
        ("sparse", lambda a: np.ascontiguousarray(a.T), "int32 [300, 26], not"),
        ("dense", lambda a: a[:-1], "float32 [299, 13], not"),
        ("labels", lambda a: a.astype(np.bool_), "bool [300], not uint8 [300]"),
    ],
)
def test_arrays_of_another_type_shape_or_order_are_refused(
    dataset: Path, kind: str, change: Callable[[Any], Any], message: str
) -> None:
    _rewrite_array(dataset, kind, change)
    assert message in _refusal(dataset)


@pytest.mark.parametrize("kind", ["labels", "dense", "sparse"])
def test_verification_detects_one_flipped_bit(dataset: Path, kind: str) -> None:
    path = dataset / f"{SHARD}.{kind}.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x01
    path.write_bytes(data)
    PreparedDataset.open(str(dataset), verify=False)
    assert f"{path}: its crc32 is" in _refusal(dataset, verify=True)


def test_an_empty_file_has_the_checksum_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "user.jsonl"  # the vocabulary of a feature whose values are all rare
    path.touch()
    verify_crc32(path, 0)
    with pytest.raises(DatasetError, match=r"user.jsonl: its crc32 is 00000000"):
        verify_crc32(path, 1)


def test_a_dataset_with_an_empty_vocabulary_can_be_trained_on(tmp_path: Path) -> None:
    lines = ["clicked,price,user,city", *(f"{row % 2},0.5,u{row},c{row % 3}" for row in range(60))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    schema = {"label": "clicked", "dense": ["price"], "sparse": ["user", "city"]}
    prepare(str(tmp_path / "rows.csv"), tmp_path / "data", schema=parse(schema))
    assert (tmp_path / "data" / "vocabulary" / "user.jsonl").stat().st_size == 0
    opened = PreparedDataset.open(str(tmp_path / "data"), verify=True)
    assert opened.num_embeddings["user"] == 2


def _put(index: Any, value: Any) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array[index] = value
        return array

    return change


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("sparse", _put((2, 7), 50), "C3 holds the id 50; its table has 50 rows, so ids go from 0 to 49"),
        ("sparse", _put((25, 0), -1), "C26 holds the id -1"),
        ("labels", _put(3, 2), "holds the label 2"),
        ("dense", _put((4, 1), np.nan), "row 4 holds"),
        ("dense", _put((299, 12), -np.inf), "row 299 holds"),
        ("dense", _put((8, slice(2, 4)), (np.inf, -np.inf)), "row 8 holds"),
    ],
)
def test_verification_detects_values_out_of_range(
    dataset: Path, kind: str, change: Callable[[Any], Any], message: str
) -> None:
    _rewrite_array(dataset, kind, change)
    PreparedDataset.open(str(dataset), verify=False)
    assert message in _refusal(dataset, verify=True)


def test_verification_detects_a_wrong_count_of_positives(dataset: Path) -> None:
    _rewrite(dataset, lambda d: d["splits"]["train"].update(positives=1))
    assert "claims 1 positive labels" in _refusal(dataset, verify=True)


def test_verification_shared_by_ranks_detects_the_same_errors(dataset: Path) -> None:
    _rewrite_array(dataset, "labels", _put(3, 2))
    opened = PreparedDataset.open(str(dataset), verify=False)
    opened.verify(part=0, parts=2)
    with pytest.raises(DatasetError, match="holds the label 2"):
        opened.verify(part=1, parts=2)
