"""Items of a retrieval model: exported with an index, and found over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.contract.serving.support_models import HISTORY, PLAIN, export_to, learn, make_rows
from tests.contract.serving.support_server import serving
from trainer.commands import export, predict
from trainer.serving.exported import read_export
from trainer.serving.items import EXACT, make_index


def test_the_best_items_of_users_are_those_of_all_products(tmp_path: Path) -> None:
    checkpoints = learn(tmp_path, HISTORY, model="two_tower")
    package = export_to(checkpoints, tmp_path / "model", "--items", str(tmp_path / "data"))
    trained = read_export(package)
    assert trained.items is not None
    words = ["--checkpoint", str(checkpoints), "--dataset_path", str(tmp_path / "data")]
    assert predict.main([*words, "--vectors", "item", "--out", str(tmp_path / "items.npy")]) == 0
    np.testing.assert_array_equal(trained.items.ids.numpy(), np.load(tmp_path / "items.ids.npy"))
    np.testing.assert_allclose(trained.items.vectors.numpy(), np.load(tmp_path / "items.npy"), atol=1e-6)
    # Raw files with the same items give the same vectors.
    raw = export_to(checkpoints, tmp_path / "raw", "--items", str(tmp_path / "rows.parquet"))
    again = read_export(raw).items
    assert again is not None
    vectors = dict(zip(again.values or (), again.vectors, strict=True))
    for value, vector in zip(trained.items.values or (), trained.items.vectors, strict=True):
        np.testing.assert_allclose(vectors.pop(value), vector, atol=1e-6)
    assert not vectors
    rows = make_rows(2, 50)
    pairs = [row | {"item": item} for row in rows[:3] for item in range(30)]
    with serving(package) as server, server.client() as client:
        status, content, _ = client.post("/v1/retrieve", {"rows": rows, "k": 7})
        assert status == 200
        users_only = [{key: row[key] for key in ("price", "city", "path")} for row in rows]
        assert client.post("/v1/retrieve", {"rows": users_only, "k": 7}).content == content
        scores = np.array(client.scores(pairs)).reshape(3, 30)
        assert client.post("/v1/retrieve", {"rows": rows, "k": 0}).status == 422
        assert client.post("/v1/retrieve", {"rows": users_only[:1]}).content["items"][0][9]
        bad = client.post("/v1/retrieve", {"rows": [users_only[0] | {"price": "x"}]})
        assert bad.status == 422
        assert bad.content["error"]["rows"][0]["column"] == "price"
    assert {len(found) for found in content["items"]} == {7}
    for found, expected in zip(content["items"][:3], scores, strict=True):
        best = [str(each) for each in np.argsort(-expected)[:7]]
        assert [each["item"] for each in found] == best
        logits = np.log(expected / (1 - expected))
        temperature = trained.config.temperature
        own = [each["score"] for each in found]
        np.testing.assert_allclose(own, np.sort(logits * temperature)[::-1][:7], atol=1e-4)


def test_a_large_index_finds_the_neighbours_that_brute_force_finds() -> None:
    random = np.random.default_rng(1)
    items = random.normal(size=(3 * EXACT, 32)).astype(np.float32)
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    users = random.normal(size=(200, 32)).astype(np.float32)
    _, found = make_index(items).search(users, 10)
    exact = np.argsort(-(users @ items.T), axis=1)[:, :10]
    recall = np.mean([len(set(mine) & set(right)) / 10 for mine, right in zip(found, exact, strict=True)])
    assert recall >= 0.97
    _, small = make_index(items[:EXACT]).search(users, 10)
    np.testing.assert_array_equal(small, np.argsort(-(users @ items[:EXACT].T), axis=1)[:, :10])


def test_items_without_an_index_are_compared_one_by_one(tmp_path: Path) -> None:
    checkpoints = learn(tmp_path, HISTORY, model="two_tower")
    package = export_to(checkpoints, tmp_path / "model", "--items", str(tmp_path / "data"))
    rows = make_rows(2, 5)
    with serving(package) as server, server.client() as client:
        expected = client.post("/v1/retrieve", {"rows": rows}).content["items"]
    config = json.loads((package / "config.json").read_text())
    del config["items"]["files"]["index"]
    (package / "config.json").write_text(json.dumps(config))
    (package / "items" / "index.faiss").unlink()
    with serving(package) as server, server.client() as client:
        found = client.post("/v1/retrieve", {"rows": rows}).content["items"]
    for mine, right in zip(found, expected, strict=True):
        assert [each["item"] for each in mine] == [each["item"] for each in right]


def test_items_of_another_model_or_unknown_ones_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranking = learn(tmp_path / "ranking", PLAIN)
    words = ["--checkpoint", str(ranking), "--out", str(tmp_path / "out"), "--items", "data"]
    assert export.main(words) == 64
    assert "the model dlrm has no vectors of items" in capsys.readouterr().err
    package = export_to(ranking, tmp_path / "plain")
    with serving(package) as server, server.client() as client:
        answer = client.post("/v1/retrieve", {"rows": make_rows(1, 1)})
    assert answer.status == 404
    assert "the package has no items" in answer.content["error"]["message"]
    checkpoints = learn(tmp_path / "towers", HISTORY, model="two_tower")
    pq.write_table(
        pa.Table.from_pylist([row | {"item": 999} for row in make_rows(1, 9)]), tmp_path / "new.parquet"
    )
    words = ["--checkpoint", str(checkpoints), "--out", str(tmp_path / "out2")]
    assert export.main([*words, "--items", str(tmp_path / "new.parquet")]) == 64
    assert "no item that the model knows" in capsys.readouterr().err
