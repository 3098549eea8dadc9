"""Values outside a vocabulary that share several ids by hash."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.data.check import check
from cloudrec.data.prepare.folder import claimed
from cloudrec.data.prepare.many.parts import make_job, prepare_parts
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.data.prepare.table_files import find_tables
from cloudrec.data.prepare.table_pipeline import TablePreparation
from cloudrec.errors import DataError
from cloudrec_contract.features import SchemaError, parse
from tests.unit.data.test_prepare_parts import Twice, contents, described

BUCKETS = 7
KEYS: dict[str, Any] = {"min_frequency": 4, "unknown_buckets": BUCKETS}
SCHEMA: dict[str, Any] = {
    "label": "y",
    "dense": ["number"],
    "sparse": [
        {"name": "city", **KEYS},
        {"name": "user", "table": "people", **KEYS},
        {"name": "friends", "kind": "multi_hot", "table": "people", **KEYS},
    ],
}
ROWS = 1_000


def _rows(seed: int = 0) -> dict[str, list[Any]]:
    source = random.Random(seed)  # noqa: S311 - rows, not secrets
    return {
        "y": [source.randrange(2) for _ in range(ROWS)],
        "number": list(range(ROWS)),
        "city": [source.choice([None, f"c{int(source.expovariate(0.02))}"]) for _ in range(ROWS)],
        "user": [source.randrange(400) for _ in range(ROWS)],
        "friends": [[source.randrange(400) for _ in range(source.randrange(3))] for _ in range(ROWS)],
    }


def _ids(out: Path, values: list[Any]) -> dict[Any, int]:
    """The id of each value of `city`, which must be the same in all rows of both splits."""
    found: dict[Any, int] = {}
    for split in ("train", "test"):
        for path in sorted((out / split).glob("*.dense.npy")):
            rows = np.load(path)[:, 0].astype(int).tolist()
            ids = np.load(path.with_name(path.name.replace("dense", "sparse")))[0].tolist()
            for row, each in zip(rows, ids, strict=True):
                assert found.setdefault(values[row], each) == each
    return found


def test_unknown_values_share_the_ids_before_the_vocabulary(tmp_path: Path) -> None:
    rows = _rows()
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    out = tmp_path / "out"
    prepare(
        str(tmp_path / "rows.parquet"), out, options=PrepareOptions(test_fraction=0.3), schema=parse(SCHEMA)
    )
    check(out, deep=True)
    known = (out / "vocabulary" / "city.jsonl").read_text().splitlines()
    ids = _ids(out, rows["city"])
    assert {ids[each.strip('"')] for each in known} == set(range(1 + BUCKETS, 1 + BUCKETS + len(known)))
    assert [ids[each.strip('"')] for each in known] == list(range(1 + BUCKETS, 1 + BUCKETS + len(known)))
    assert ids[None] == 0
    unknown = [each for value, each in ids.items() if value and f'"{value}"' not in known]
    assert set(unknown) == set(range(1, 1 + BUCKETS))
    assert len(unknown) > 5 * BUCKETS
    document = described(out)
    assert document["num_embeddings_per_feature"]["city"] == 1 + BUCKETS + len(known)


def test_values_of_other_data_have_the_same_ids_in_parts_too(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for number in range(3):
        pq.write_table(pa.table(_rows(number)), tmp_path / "rows" / f"{number}.parquet")
    options, schema = PrepareOptions(shard_rows=300, test_fraction=0.3), parse(SCHEMA)
    prepare(str(tmp_path / "rows"), tmp_path / "one", options=options, schema=schema)
    files = find_tables([str(tmp_path / "rows")])
    with claimed(tmp_path / "many", overwrite=False) as workspace:
        head = TablePreparation(workspace, options, files, schema, progress=lambda _done, _total: None)
        job = make_job(tmp_path / "many", options, files, schema, ())
        made = prepare_parts(job, head, Twice(), known=None, progress=lambda _done, _total: None)
        workspace.commit(made, head.bad_rows)
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
    assert described(tmp_path / "many") == described(tmp_path / "one")
    like = PrepareOptions(like=str(tmp_path / "one"), shard_rows=300, test_fraction=0.3)
    prepare(str(tmp_path / "rows"), tmp_path / "like", options=like)
    assert contents(tmp_path / "like") == contents(tmp_path / "one")
    other = {**SCHEMA, "sparse": [{**each, "unknown_buckets": 8} for each in SCHEMA["sparse"]]}
    with pytest.raises(DataError, match="differs from that of --like in city, user, friends"):
        prepare(str(tmp_path / "rows"), tmp_path / "other", options=like, schema=parse(other))


def test_one_bucket_is_the_format_of_before(tmp_path: Path) -> None:
    pq.write_table(pa.table(_rows()), tmp_path / "rows.parquet")
    written = []
    for name, keys in (("plain", {"min_frequency": 4}), ("one", {**KEYS, "unknown_buckets": 1})):
        sparse = [{**{k: each[k] for k in each if k not in KEYS}, **keys} for each in SCHEMA["sparse"]]
        prepare(str(tmp_path / "rows.parquet"), tmp_path / name, schema=parse({**SCHEMA, "sparse": sparse}))
        written.append((contents(tmp_path / name), described(tmp_path / name)))
    assert written[0] == written[1]
    assert "unknown" not in str(written[0][1]["encoding"]["mapping"]["tables"])
    assert "unknown_buckets" not in str(written[0][1]["features"])


@pytest.mark.parametrize(
    ("sparse", "message"),
    [
        (
            [{"name": "c", "unknown_buckets": 0}],
            "unknown_buckets of c is 0; it must be a whole number",
        ),
        (
            [{"name": "c", "unknown_buckets": 3, "encoding": "hash"}],
            "has unknown_buckets but encoding hash",
        ),
        (
            [{"name": "c", "unknown_buckets": 3}, {"name": "d", "table": "c"}],
            "c and d share the table c, but differ in unknown_buckets",
        ),
    ],
)
def test_a_schema_that_cannot_be_is_refused(sparse: list[Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse({"label": "y", "sparse": sparse})
