"""`cloudrec serve`: raw rows get the scores of `predict --raw` over HTTP."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cloudrec_server.rows import RowsRefusedError, make_rows_encoder
from cloudrec_server.scoring import make_ready, score_requests
from tests.contract.serving.support_models import (
    HISTORY,
    PLAIN,
    RICH,
    SEVERAL,
    export_to,
    learn,
    make_rows,
    predicted,
)
from tests.contract.serving.support_server import serving
from trainer.base.errors import ConfigError
from trainer.serving.exported import read_export

MODELS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "dlrm": (PLAIN, {}, "none"),
    "dlrm-int8": (PLAIN, {}, "int8"),
    "dlrm-every-kind": (RICH, {}, "none"),
    "dlrm-every-kind-fp16": (RICH, {}, "fp16"),
    "dcn_v2": (RICH, {"model": "dcn_v2"}, "none"),
    "deepfm": (PLAIN, {"model": "deepfm"}, "none"),
    "mmoe": (SEVERAL, {"model": "mmoe"}, "none"),
    "din": (HISTORY, {"model": "din"}, "none"),
    "two_tower": (HISTORY, {"model": "two_tower"}, "none"),
}


@pytest.mark.parametrize("name", MODELS)
def test_served_scores_are_those_of_predict(name: str, tmp_path: Path) -> None:
    schema, settings, quantization = MODELS[name]
    checkpoints = learn(tmp_path, schema, **settings)
    package = export_to(checkpoints, tmp_path / "model", "--quantize", quantization)
    rows = make_rows(2, 300)
    expected = predicted(package, rows, tmp_path / "scratch")
    with serving(package) as server, server.client() as client:
        alone = [client.scores([row])[0] for row in rows[:40]]
        together = client.scores(rows)
        answer = client.post("/v1/score", {"rows": rows[:2]}).content
        model = client.get("/v1/model").content
    np.testing.assert_allclose(np.array(together), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(np.array(alone), expected[:40], rtol=0, atol=1e-6)
    assert len(np.unique(np.round(expected, 6))) > 100
    assert (answer["version"], answer["step"]) == (model["version"], model["step"])
    assert model["quantization"] == quantization


def test_a_request_without_a_column_is_refused_also_behind_another_one(tmp_path: Path) -> None:
    package = export_to(learn(tmp_path, PLAIN), tmp_path / "model")
    trained = read_export(package)
    served = SimpleNamespace(version="1", trained=trained, ready=make_ready(trained))
    live: Any = SimpleNamespace(served=served)
    good, bad = make_rows(2, 1)[0], make_rows(3, 1)[0]
    bad["citty"] = bad.pop("city")
    for requests in ([[bad]], [[good], [bad]], [[bad], [good]]):
        with pytest.raises(RowsRefusedError, match="no row has the column city"):
            score_requests(live, requests)
    assert len(score_requests(live, [[good], [good, {**bad, "city": None}]])) == 2


def test_hashes_of_managed_features_are_not_taken_modulo_a_table(tmp_path: Path) -> None:
    managed = {"name": "shop", "encoding": "managed_collision", "buckets": 60}
    schema = {**PLAIN, "sparse": [{"name": "city", "min_frequency": 1}, managed]}
    settings: dict[str, Any] = {"hash_overflow": True, "num_embeddings_per_feature": (5, 60)}
    trained = read_export(export_to(learn(tmp_path, schema, **settings), tmp_path / "model"))
    cities, shops = make_rows_encoder(trained).encode(make_rows(2, 50)).sparse
    assert int(cities.max()) < 5
    assert int(shops.max()) > 60


def test_a_model_of_retrieval_is_refused_before_its_first_step_if_items_would_be_one(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": "two_tower", "hash_overflow": True}
    settings["num_embeddings_per_feature"] = (30, 10, 10)
    with pytest.raises(ConfigError, match=r"the table of item has 10 rows, .* several items one"):
        learn(tmp_path, HISTORY, **settings)
