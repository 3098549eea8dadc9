"""What a checkpoint or an export says of its model and its run is checked before it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz import readers
from tests.fuzz.documents import ARRAYS, DOCUMENTS
from trainer.base.errors import CheckpointError
from trainer.checkpoint.format.commit import DamagedError, Part, _seal, parse_commit, parse_manifest
from trainer.checkpoint.load.storage import dtype_of
from trainer.loop.saving import resumed_from
from trainer.serving.scorer import model_of, parse_shape

COMMIT: Mapping[str, Any] = DOCUMENTS["commit"]
EXTRA: Mapping[str, Any] = COMMIT["extra"]
MODEL: Mapping[str, Any] = EXTRA["model"]
PART = DOCUMENTS["manifest"]["parts"][1]


@pytest.mark.parametrize(
    "change",
    [
        {"step": "5"},
        {"step": -1},
        {"owner": 1.5},
        {"base": 7},
        {"fingerprint": []},
        {"extra": "x"},
        {"layers": [[["a", "123", 5]]]},
        {"layers": [[[None, 123, 5]]]},
    ],
)
def test_a_commit_with_a_field_of_another_type_is_damaged(change: dict[str, Any]) -> None:
    sound = {name: value for name, value in COMMIT.items() if name != "crc32"}
    assert parse_commit("here", _seal(sound)).step == 5
    with pytest.raises(DamagedError, match="here: cannot be read"):
        parse_commit("here", _seal({**sound, **change}))


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, 7),
        (2, ["9", 4]),
        (3, [0]),
        (5, -64),
        (6, True),
        (9, ["ids", "9", 208, 2, 1]),
        (9, [1, 9, 208, 2, 1]),
    ],
)
def test_a_manifest_with_a_part_of_another_type_is_damaged(at: int, value: object) -> None:
    sound = {name: value for name, value in DOCUMENTS["manifest"].items() if name != "crc32"}
    assert len(parse_manifest("here", _seal(sound)).parts) == 2
    part = [*PART[:at], value, *PART[at + 1 :]]
    with pytest.raises(DamagedError, match="here: cannot be read"):
        parse_manifest("here", _seal({**sound, "parts": [part]}))


@pytest.mark.parametrize("change", [{"file": 7}, {"bytes": float("inf")}, {"bytes": -1}, {"parts": None}])
def test_a_manifest_with_a_field_of_another_type_is_damaged(change: dict[str, Any]) -> None:
    sound = {name: value for name, value in DOCUMENTS["manifest"].items() if name != "crc32"}
    with pytest.raises(DamagedError, match="here: cannot be read"):
        parse_manifest("here", _seal({**sound, **change}))


@pytest.mark.parametrize("name", ["float3", "save", "__name__"])
def test_a_type_that_torch_does_not_have_is_damage(name: str) -> None:
    part = Part("dense/a", name, (1,), (0,), (1,), 0, 4, 0)
    with pytest.raises(DamagedError, match=f"dense/a: its type '{name}' is none of torch"):
        dtype_of(part)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_embeddings": []}, "num_embeddings is"),
        ({"num_embeddings": {"C1": 0}}, "the rows of table C1 is 0"),
        ({"num_embeddings": {"C1": 2**31}}, "from 1 to 2,147,483,647"),
        ({"num_embeddings": {}}, "no tables"),
        ({"embedding_dim": 10**9}, "the width embedding_dim is 1000000000"),
        ({"dims": {"C2": 4}}, "'C2' is no table"),
        ({"feature_tables": {"C1": "people"}}, "'people' is no table"),
        ({"mean_pooled": ["C9"]}, "'C9' is no sparse feature"),
        ({"sequences": {"C1": 0}}, "the length of C1 is 0"),
        ({"over_arch_layer_sizes": []}, "no layers"),
        ({"over_arch_layer_sizes": [0, 1]}, "layer 0 of over_arch is 0"),
        ({"over_arch_layer_sizes": [4, 2]}, "its MLPs end with 4 and 2, not with 4 and 1"),
        ({"over_arch_layer_sizes": [4, "1"]}, r"over_arch_layer_sizes\[1\] is"),
        ({"num_dense": -1}, "num_dense is -1"),
        ({"later": 1}, "unknown field"),
    ],
)
def test_sizes_that_no_model_has_are_refused(change: dict[str, Any], words: str) -> None:
    assert parse_shape(MODEL).num_embeddings == {"C1": 4}
    with pytest.raises(ValueError, match=words):
        parse_shape({**MODEL, **change})
    with pytest.raises(CheckpointError, match=f"here: its model configuration cannot be read: .*{words}"):
        model_of({**EXTRA, "model": {**MODEL, **change}}, "here")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"files": {name: {} for name in ARRAYS if "dense/top.layers.1.bias" not in name}}, "is missing"),
        (
            {"model": {**MODEL, "over_arch_layer_sizes": [8, 1]}},
            r"dense/top.layers.0.weight is \(4, 5\), not",
        ),
        ({"quantization": ["int8"]}, "quantization is"),
        ({"model": {**MODEL, "num_embeddings": {"C1": 5}}}, r"the table C1 is \(4, 4\), not \(5, 4\)"),
        ({"model": {**MODEL, "num_embeddings": {"C2": 4}}}, "'C1' is no table of the model"),
        ({"model": {**MODEL, "managed": ["C1"]}}, "managed/C1 is missing"),
    ],
)
def test_an_export_without_an_array_of_its_model_is_refused(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    sound = DOCUMENTS["export"]
    readers.read("export", json.dumps(sound).encode(), tmp_path)
    with pytest.raises(CheckpointError, match=words):
        readers.read("export", json.dumps({**sound, **change}).encode(), tmp_path)


def test_a_checkpoint_without_a_model_is_of_an_older_version() -> None:
    with pytest.raises(CheckpointError, match="an older version wrote it"):
        model_of({"model": MODEL}, "here")
    with pytest.raises(CheckpointError, match="here: its model configuration cannot be read"):
        model_of({"model": MODEL, "config": []}, "here")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"progress": None}, "progress is None"),
        ({"progress": {"step": "x"}}, "progress.step is"),
        ({"progress": {"step": -1}}, "a negative count"),
        ({"progress": {"later": 1}}, "unknown field"),
        ({"samples": {"sums": ["x", "y"], "count": 1}}, "invalid literal"),
        ({"samples": {"sums": ["0a"], "count": 1}}, "not enough values"),
        ({"samples": []}, "must be integers"),
    ],
)
def test_progress_that_no_run_has_is_refused(change: dict[str, Any], words: str) -> None:
    resumed = resumed_from(EXTRA, "here")
    assert (resumed.progress.step, resumed.progress.attempt, resumed.seen.count) == (5, 1, 5)
    remedy = "resume with the version of cloudrec that wrote it"
    with pytest.raises(CheckpointError, match=f"here: the progress .* cannot be read: .*{words}.*{remedy}"):
        resumed_from({**EXTRA, **change}, "here")
    for name in ("progress", "samples"):
        with pytest.raises(CheckpointError, match=f"the field '{name}' is missing"):
            resumed_from({key: value for key, value in EXTRA.items() if key != name}, "here")
