"""`cloudrec serve`: raw rows get the scores of `predict --raw` over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
