"""The hashes of texts: as documented, for any layout of the texts in memory, and named in dataset.json."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.data.format.encoding import digest_of
from cloudrec.data.hashes import FIRST_VERSION, NEWEST, text_hash
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.errors import DataError
from cloudrec_contract.features import parse

_MASK = (1 << 64) - 1
BUCKETS = 1000
SCHEMA: dict[str, Any] = {
    "label": "clicked",
    "sparse": [{"name": "value", "encoding": "hash", "buckets": BUCKETS}],
}
GOLDEN = {  # computed once: ids of datasets depend on them
    "": 11286133854226296554,
    "7": 13827008376664341356,
    "New York, NY": 4117054350172521592,
    "Köln": 9203631969536180852,
}


def mixed(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def documented(text: str) -> int:
    """Return the hash of a text of at most 256 bytes, byte by byte."""
    data = text.encode()
    found = mixed(len(data) + 0x9E3779B97F4A7C15 & _MASK)
    for start in range(0, len(data), 8):
        found = mixed(found ^ int.from_bytes(data[start : start + 8].ljust(8, b"\0"), "little"))
    return found


def texts(count: int, *, seed: int = 0, most: int = 40) -> list[str]:
    source = random.Random(seed)  # noqa: S311 - texts, not secrets
    return ["".join(source.choices("ab\0é日", k=source.randrange(most))) for _ in range(count)]


@pytest.mark.parametrize("made", [texts(3000), texts(50, most=2), ["", ""], ["x" * 256, "y" * 8, "z" * 9]])
def test_the_hash_is_the_documented_one(made: list[str]) -> None:
    found = text_hash(NEWEST)(pa.array(made)).tolist()
    assert found == [documented(each) for each in made]


def test_the_hash_never_changes() -> None:
    assert dict(zip(GOLDEN, text_hash(NEWEST)(pa.array(list(GOLDEN))).tolist(), strict=True)) == GOLDEN


def test_a_long_text_has_the_first_versions_hash() -> None:
    made = pa.array(["x" * 257, "short", "é" * 200_000, None])
    found, first = text_hash(NEWEST)(made), text_hash(FIRST_VERSION)(made)
    assert found[[0, 2]].tolist() == first[[0, 2]].tolist()
    assert found[1] == documented("short") != first[1]


def test_a_text_has_one_hash_however_it_lies_in_memory() -> None:
    made = [None, *texts(200), "x" * 300]
    whole = text_hash(NEWEST)(pa.array(made))
    assert text_hash(NEWEST)(pa.array([])).tolist() == []
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        part = text_hash(NEWEST)(pa.array(made, kind).slice(7, 150))
        assert part.tolist() == whole[7:157].tolist()


def test_texts_are_spread_evenly() -> None:
    made = [f"item-{each}" for each in range(200_000)]
    hashes = text_hash(NEWEST)(pa.array(made))
    assert len(np.unique(hashes)) == len(made)
    expected = len(made) / (BUCKETS - 1)
    counts = np.bincount((hashes % np.uint64(BUCKETS - 1)).astype(np.intp))
    # Chi-squared with 998 degrees of freedom: 0.0001 of random hashes have more than 1170.
    assert ((counts - expected) ** 2 / expected).sum() < 1170


def prepared(folder: Path, values: pa.Array, **options: Any) -> list[int]:
    """Return the ids of values."""
    folder.mkdir()
    table = pa.table({"clicked": pa.array(np.arange(len(values)) % 2), "value": values})
    pq.write_table(table, folder / "rows.parquet")
    chosen = PrepareOptions(test_fraction=0.0, **options)
    schema = None if chosen.like else parse(SCHEMA)
    prepare(str(folder / "rows.parquet"), folder / "out", options=chosen, schema=schema)
    ids: list[int] = np.load(folder / "out" / "train" / "shard-00000.sparse.npy")[0].tolist()
    return ids


def test_equal_values_have_equal_ids_of_any_type(tmp_path: Path) -> None:
    numbers = [7, None, -7, 0, 1 << 40, *range(3000)]
    made = {
        "integers": pa.array(numbers),
        "numbers": pa.array(numbers, pa.float64()),
        "texts": pa.array(numbers).cast(pa.string()),
        "categories": pa.array(numbers).cast(pa.string()).dictionary_encode(),
        "repeated": pa.array([*numbers, *numbers, *numbers]).cast(pa.string()),  # Parquet's dictionary
    }
    expected = [0 if each is None else 1 + documented(str(each)) % (BUCKETS - 1) for each in numbers]
    for name, values in made.items():
        assert prepared(tmp_path / name, values)[: len(numbers)] == expected, name


def test_ids_of_the_first_version_stay(tmp_path: Path) -> None:
    new = prepared(tmp_path / "new", pa.array(["a", None, "b"]))
    file = tmp_path / "new" / "out" / "dataset.json"
    content = json.loads(file.read_text())
    encoding = content["encoding"]
    assert encoding["mapping"].pop("hash") == NEWEST
    encoding["digest"] = digest_of(encoding["mapping"])
    file.write_text(json.dumps(content))

    like = str(tmp_path / "new" / "out")
    first = text_hash(FIRST_VERSION)(pa.array(["a", "b", "c"])) % np.uint64(BUCKETS - 1) + np.uint64(1)
    assert prepared(tmp_path / "like", pa.array(["a", None, "b", "c"]), like=like) == [
        first[0],
        0,
        *first[1:],
    ]
    again = json.loads((tmp_path / "like" / "out" / "dataset.json").read_text())["encoding"]
    assert again["digest"] == encoding["digest"]
    assert new[0] != first[0]


def test_an_unknown_hash_is_refused(tmp_path: Path) -> None:
    prepared(tmp_path / "new", pa.array(["a"]))
    file = tmp_path / "new" / "out" / "dataset.json"
    content = json.loads(file.read_text())
    content["encoding"]["mapping"]["hash"] = "later"
    content["encoding"]["digest"] = digest_of(content["encoding"]["mapping"])
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match="made by the hash 'later'; this cloudrec has words64 and blake2b"):
        prepared(tmp_path / "like", pa.array(["a"]), like=str(tmp_path / "new" / "out"))
