"""The graph of an export: torch alone computes the scores of `predict`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloudrec_server.rows import make_rows_encoder
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
from trainer.serving.exported import read_export

MODELS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "dlrm": (PLAIN, {}, "none"),
    "dlrm-int8": (PLAIN, {}, "int8"),
    "dlrm-int4": (PLAIN, {}, "int4"),
    "dlrm-fp16": (PLAIN, {}, "fp16"),
    "wide_deep-fp16": (RICH, {"model": "wide_deep"}, "fp16"),
    "dlrm-every-kind": (RICH, {}, "none"),
    "dcn_v2": (RICH, {"model": "dcn_v2"}, "none"),
    "deepfm": (PLAIN, {"model": "deepfm"}, "none"),
    "wide_deep": (RICH, {"model": "wide_deep"}, "none"),
    "mmoe": (SEVERAL, {"model": "mmoe"}, "none"),
    "ple": (SEVERAL, {"model": "ple"}, "none"),
    "din": (HISTORY, {"model": "din"}, "none"),
    "hstu": (HISTORY, {"model": "hstu"}, "none"),
    "two_tower": (HISTORY, {"model": "two_tower"}, "none"),
}
# What a user's program is: it knows config.json, numpy and torch.
PROGRAM = """
import json, sys
for name in ("trainer", "cloudrec", "cloudrec_contract", "cloudrec_server", "torchrec", "fbgemm_gpu"):
    sys.modules[name] = None  # importing one of these fails
import numpy as np, torch
package, folder, *inputs = sys.argv[1:]
graph = json.load(open(f"{package}/config.json"))["graph"]
run = torch.export.load(f"{package}/{graph['file']}").module()
for number in inputs:
    given = dict(np.load(f"{folder}/{number}.npz"))
    arguments = {"ids": {}, "offsets": {}, "tables": {}, "weights": {}}
    for each in graph["inputs"]:
        kind, _, name = each["name"].partition(".")
        array = np.load(f"{package}/{each['file']}") if "file" in each else given[each["name"]]
        assert array.dtype == each["type"], each
        assert array.ndim == len(each["shape"]), each
        if name:
            arguments[kind][name] = torch.from_numpy(array)
        else:
            arguments[kind] = torch.from_numpy(array)
    if not arguments["weights"]:
        del arguments["weights"]
    with torch.no_grad():
        found = run(arguments.pop("dense"), *arguments.values())
    assert list(found) == [each["name"] for each in graph["outputs"]]
    np.savez(f"{folder}/{number}.out.npz", **{name: each.numpy() for name, each in found.items()})
"""


def inputs_of(package: Path, rows: list[dict[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """The graph's inputs for raw rows, as its description says."""
    trained = read_export(package)
    batch = make_rows_encoder(trained).encode(rows)
    features = trained.shape.features
    lengths = batch.lengths
    if lengths is None:
        lengths = torch.ones(len(features), len(rows), dtype=torch.int64)
    sizes = lengths.sum(dim=1).tolist()
    found = {"dense": batch.dense.numpy()}
    for name, ids, each in zip(features, batch.sparse.flatten().split(sizes), lengths, strict=True):
        found[f"ids.{name}"] = ids.numpy().astype(np.int64)
        found[f"offsets.{name}"] = np.concatenate([[0], each.cumsum(0).numpy()]).astype(np.int64)
    if trained.shape.weighted:
        assert batch.id_weights is not None
        for name, weights in zip(features, batch.id_weights.split(sizes), strict=True):
            found[f"weights.{name}"] = weights.numpy()
    return found


@pytest.mark.parametrize("name", MODELS)
def test_torch_alone_computes_the_scores_of_predict(name: str, tmp_path: Path) -> None:
    schema, settings, quantization = MODELS[name]
    checkpoints = learn(tmp_path, schema, **settings)
    package = export_to(checkpoints, tmp_path / "model", "--quantize", quantization, "--graph")
    every = make_rows(2, 200)
    expected = predicted(package, every, tmp_path / "scratch")
    for number, rows in enumerate((every, every[:1], every[5:7])):
        np.savez(tmp_path / f"{number}.npz", **inputs_of(package, rows))  # type: ignore[arg-type] # numpy's stub takes them for its flag
    command = [
        sys.executable,
        "-I",
        "-W",
        "ignore",
        "-c",
        PROGRAM,
        str(package),
        str(tmp_path),
        "0",
        "1",
        "2",
    ]
    subprocess.run(command, check=True)
    for number, part in enumerate((slice(0, 200), slice(0, 1), slice(5, 7))):
        found = np.load(tmp_path / f"{number}.out.npz")
        np.testing.assert_allclose(found["scores"], expected[part], rtol=0, atol=1e-6)
        if name == "two_tower":
            np.testing.assert_allclose(np.linalg.norm(found["user"], axis=1), 1, atol=1e-5)
            assert found["item"].shape == found["user"].shape


def test_the_graph_holds_no_tables(tmp_path: Path) -> None:
    schema = {**PLAIN, "sparse": [{"name": "shop", "encoding": "hash", "buckets": 100_000}]}
    checkpoints = learn(tmp_path, schema)
    package = export_to(checkpoints, tmp_path / "model", "--graph")
    assert (package / "tables" / "shop.npy").stat().st_size > 3_000_000
    assert (package / "graph.pt2").stat().st_size < 300_000


def test_a_model_without_a_graph_says_why(tmp_path: Path) -> None:
    schema = {**PLAIN, "sparse": [{"name": "shop", "encoding": "managed_collision", "buckets": 50}]}
    checkpoints = learn(tmp_path, schema)
    package = export_to(checkpoints, tmp_path / "model", "--graph")
    graph = json.loads((package / "config.json").read_text())["graph"]
    assert graph["file"] is None
    assert "the ids of shop are hashes" in graph["reason"]
    assert not (package / "graph.pt2").exists()
