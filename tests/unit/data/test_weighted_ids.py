"""Weights of the values of a list in `data prepare`."""

from __future__ import annotations

import json
import random
from itertools import pairwise
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

SCHEMA: dict[str, Any] = {
    "label": "clicked",
    "sparse": [
        "city",
        {"name": "tags", "kind": "multi_hot", "weights": "tag_scores", "min_frequency": 1},
        {"name": "friends", "kind": "multi_hot", "min_frequency": 1},
        {
            "name": "words",
            "kind": "multi_hot",
            "weights": "word_scores",
            "pooling": "mean",
            "encoding": "hash",
            "buckets": 50,
        },
    ],
}
WHOLE = PrepareOptions(test_fraction=0.0)


def _rows(count: int, seed: int = 0) -> dict[str, list[Any]]:
    source = random.Random(seed)  # noqa: S311 - rows, not secrets
    rows: dict[str, list[Any]] = {
        "clicked": [source.randrange(2) for _ in range(count)],
        "city": [source.choice([None, "a", "b"]) for _ in range(count)],
    }
    for name in ("tags", "friends", "words"):
        lists = [
            source.choice([None, [source.choice([*"abcdef", None]) for _ in range(source.randrange(4))]])
            for _ in range(count)
        ]
        rows[name] = lists
        if name != "friends":
            rows[f"{name[:-1]}_scores"] = [
                None if each is None else [source.randrange(9) / 4 for _ in each] for each in lists
            ]
    return rows


def _write(path: Path, rows: dict[str, list[Any]]) -> Path:
    pq.write_table(pa.table(rows), path, row_group_size=70)
    return path


def _weights(out: Path, feature: int, split: str = "train") -> list[list[float]]:
    offsets = np.load(out / split / "shard-00000.offsets.npy")[feature]
    weights = np.load(out / split / "shard-00000.value_weights.npy")
    return [weights[low:high].tolist() for low, high in pairwise(offsets)]


def _kept(rows: dict[str, list[Any]], name: str) -> list[list[float]]:
    """The weights of the values that are not missing."""
    pairs = zip(rows[name], rows[f"{name[:-1]}_scores"], strict=True)
    return [
        [weight for value, weight in zip(values or [], weights or [], strict=True) if value is not None]
        for values, weights in pairs
    ]


def test_weights_stay_beside_their_values(tmp_path: Path) -> None:
    rows = _rows(500)
    prepare(
        str(_write(tmp_path / "rows.parquet", rows)), tmp_path / "out", options=WHOLE, schema=parse(SCHEMA)
    )
    check(tmp_path / "out", deep=True)
    assert _weights(tmp_path / "out", 0) == _kept(rows, "tags")
    assert _weights(tmp_path / "out", 2) == _kept(rows, "words")
    friends = [[1.0] * sum(each is not None for each in row or []) for row in rows["friends"]]
    assert _weights(tmp_path / "out", 1) == friends


def test_other_formats_have_the_bytes_of_parquet(tmp_path: Path) -> None:
    rows = _rows(300)
    texts = json.loads(json.dumps(SCHEMA))
    for entry in texts["sparse"][1:]:
        entry["separator"] = "|"
    names = list(rows)
    lines, table = [], [",".join(names)]
    for row in zip(*rows.values(), strict=True):
        lines.append(json.dumps(dict(zip(names, row, strict=True))))
        cells = ["|".join("" if v is None else str(v) for v in c) if isinstance(c, list) else c for c in row]
        table.append(",".join("" if cell is None else str(cell) for cell in cells))
    # One missing value alone is an empty text, whose one weight has no value.
    alone = [
        place for place, row in enumerate(rows["tags"]) if row == [None] or rows["words"][place] == [None]
    ]
    keep = [place for place in range(300) if place not in alone]
    assert len(keep) < 300
    rows = {name: [column[place] for place in keep] for name, column in rows.items()}
    (tmp_path / "rows.jsonl").write_text("".join(f"{lines[place]}\n" for place in keep))
    (tmp_path / "rows.csv").write_text("\n".join([table[0], *(table[place + 1] for place in keep)]) + "\n")
    _write(tmp_path / "rows.parquet", rows)
    digests = set()
    for name, schema in (("rows.parquet", SCHEMA), ("rows.jsonl", SCHEMA), ("rows.csv", texts)):
        out = tmp_path / f"of-{name}"
        prepare(str(tmp_path / name), out, options=WHOLE, schema=parse(schema))
        digests.add(json.loads((out / "dataset.json").read_text())["digest"])
        assert _weights(out, 0) == _kept(rows, "tags")
    assert len(digests) == 1


def test_shards_and_parts_have_the_same_weights(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for number in range(3):
        _write(tmp_path / "rows" / f"{number}.parquet", _rows(200 + 50 * number, number))
    options = PrepareOptions(shard_rows=130, test_fraction=0.2)
    prepare(str(tmp_path / "rows"), tmp_path / "one", options=options, schema=parse(SCHEMA))
    check(tmp_path / "one", deep=True)
    files = find_tables([str(tmp_path / "rows")])
    with claimed(tmp_path / "many", overwrite=False) as workspace:
        head = TablePreparation(workspace, options, files, parse(SCHEMA), progress=lambda _done, _total: None)
        job = make_job(tmp_path / "many", options, files, parse(SCHEMA), ())
        made = prepare_parts(job, head, Twice(), known=None, progress=lambda _done, _total: None)
        workspace.commit(made, head.bad_rows)
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
    assert described(tmp_path / "many") == described(tmp_path / "one")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("tag_scores", [0.5], "rows.parquet:4: tags has 2 values and 1 weights: '[0.5]'"),
        ("tag_scores", None, "rows.parquet:4: tags has 2 values and 0 weights: 'None'"),
        ("tag_scores", [0.5, float("inf")], "rows.parquet:4: tags has a weight that is no finite number"),
        ("tag_scores", [0.5, float("nan")], "rows.parquet:4: tags has a weight that is no finite number"),
        ("tag_scores", [0.5, None], "rows.parquet:4: tags has a weight that is no finite number"),
        ("tag_scores", [0.5, 1e39], "rows.parquet:4: tags has a weight that is no finite number"),
        ("word_scores", [0.5, -1.0], "rows.parquet:4: words has a weight that is no finite number from 0"),
    ],
)
def test_a_row_whose_weights_do_not_fit_is_named(
    tmp_path: Path, column: str, values: Any, message: str
) -> None:
    rows = _rows(50)
    rows["tags"][3] = rows["words"][3] = ["a", "b"]
    rows["tag_scores"][3] = rows["word_scores"][3] = [1.0, 2.0]
    rows[column][3] = values
    source = _write(tmp_path / "rows.parquet", rows)
    with pytest.raises(DataError) as caught:
        prepare(str(source), tmp_path / "out", options=WHOLE, schema=parse(SCHEMA))
    assert message in str(caught.value)
    skip = PrepareOptions(test_fraction=0.0, max_bad_rows=1)
    report = prepare(str(source), tmp_path / "out", options=skip, schema=parse(SCHEMA))
    assert (report.rows, [each.line for each in report.first_bad_rows]) == (49, [4])
    assert _weights(tmp_path / "out", 0) == _kept(
        {name: each[:3] + each[4:] for name, each in rows.items()}, "tags"
    )


def test_weights_that_are_texts_are_parsed_or_named(tmp_path: Path) -> None:
    schema = {"label": "y", "sparse": [{"name": "t", "kind": "multi_hot", "weights": "w", "separator": "|"}]}
    (tmp_path / "rows.csv").write_text("y,t,w\n1,a|b,0.5| 2e-1\n0,a,x\n")
    with pytest.raises(DataError, match=r"rows\.csv:2: t has a weight that is no finite number: 'x'"):
        prepare(str(tmp_path / "rows.csv"), tmp_path / "out", options=WHOLE, schema=parse(schema))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weights": "scores"}, "has no column scores; did you mean tag_scores"),
        ({"weights": "city"}, "the column city is string, not lists"),
        ({"weights": "friends"}, "the column friends is string; the weight of a value needs numbers"),
    ],
)
def test_columns_that_hold_no_weights_are_refused(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    schema = {**SCHEMA, "sparse": [SCHEMA["sparse"][1] | changed]}
    with pytest.raises(DataError, match=message):
        prepare(str(_write(tmp_path / "rows.parquet", _rows(20))), tmp_path / "out", schema=parse(schema))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "city", "weights": "w"}, "city has weights but is single"),
        ({"name": "seen", "kind": "sequence", "weights": "w"}, "seen has weights but is sequence"),
        (
            {"name": "tags", "kind": "multi_hot", "weights": "clicked"},
            "tags reads the label's column clicked",
        ),
        ({"name": "tags", "kind": "multi_hot", "weights": 3}, "weights of tags is 3; it must be a text"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse({"label": "clicked", "sparse": [entry]})


def test_the_schema_comes_back_and_others_stay_as_they_were() -> None:
    assert parse(parse(SCHEMA).to_json()) == parse(SCHEMA)
    plain = parse({"label": "y", "sparse": [{"name": "tags", "kind": "multi_hot"}]})
    assert "weights" not in plain.to_json()["sparse"][0]
    assert "weighted" not in plain.mapping()[0]
