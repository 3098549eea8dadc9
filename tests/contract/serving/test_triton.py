"""The model repository for Triton: torch alone runs its file, whose inputs are those of config.pbtxt."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
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
from tests.contract.serving.test_graph import inputs_of
from trainer.commands import export

MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dlrm": (PLAIN, {}),
    "dcn_v2": (RICH, {"model": "dcn_v2"}),
    "mmoe": (SEVERAL, {"model": "mmoe"}),
    "din": (HISTORY, {"model": "din"}),
}
_PORT = re.compile(r'\{ name: "(\w+)__(\d+)" data_type: (TYPE_\w+) dims: \[ (\d+) \] \}')
PROGRAM = """
import sys
for name in ("trainer", "cloudrec", "cloudrec_contract", "torchrec", "fbgemm_gpu"):
    sys.modules[name] = None
import numpy as np, torch
given = np.load(sys.argv[2])
model = torch.jit.load(sys.argv[1])
inputs = [torch.from_numpy(given[str(number)]) for number in range(len(given.files))]
np.save(sys.argv[3], model(*inputs).numpy())
"""


def _padded(values: Any, offsets: Any, width: int, fill: float) -> Any:
    rows = np.full((len(offsets) - 1, width), fill, values.dtype)
    for row, (start, stop) in enumerate(itertools.pairwise(offsets)):
        kept = values[max(start, stop - width) : stop]
        rows[row, : len(kept)] = kept
    return rows


@pytest.mark.parametrize("name", MODELS)
def test_the_repository_scores_like_predict(name: str, tmp_path: Path) -> None:
    schema, settings = MODELS[name]
    checkpoints = learn(tmp_path, schema, **settings)
    package = export_to(checkpoints, tmp_path / "model", "--triton", str(tmp_path / "repository"))
    rows = make_rows(2, 100)
    expected = predicted(package, rows, tmp_path / "scratch")
    (folder,) = (tmp_path / "repository").iterdir()
    text = (folder / "config.pbtxt").read_text()
    assert f'name: "{folder.name}"' in text
    ports = _PORT.findall(text)
    assert [int(number) for _, number, _, _ in ports[:-1]] == list(range(len(ports) - 1))
    made = inputs_of(package, rows)
    arrays = {}
    for port, number, kind, width in ports[:-1]:
        feature = port.removesuffix("_weights")
        if port == "dense":
            arrays[number] = made["dense"]
        elif kind == "TYPE_INT64":
            arrays[number] = _padded(made[f"ids.{port}"], made[f"offsets.{port}"], int(width), -1)
        else:
            arrays[number] = _padded(made[f"weights.{feature}"], made[f"offsets.{feature}"], int(width), 0)
        assert arrays[number].shape == (100, int(width))
    np.savez(tmp_path / "inputs.npz", **arrays)  # type: ignore[arg-type] # as in test_graph
    program = [sys.executable, "-I", "-W", "ignore", "-c", PROGRAM, str(folder / "1" / "model.pt")]
    subprocess.run([*program, str(tmp_path / "inputs.npz"), str(tmp_path / "scores.npy")], check=True)
    found = np.load(tmp_path / "scores.npy")
    assert found.shape[1] == int(ports[-1][3])
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=0, atol=1e-6)


def test_a_repository_that_has_the_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = learn(tmp_path, PLAIN)
    export_to(checkpoints, tmp_path / "model", "--triton", str(tmp_path / "repository"))
    words = ["--checkpoint", str(checkpoints), "--out", str(tmp_path / "again")]
    assert export.main([*words, "--triton", str(tmp_path / "repository")]) == 64
    assert "exists; give a new folder" in capsys.readouterr().err
    words[-1] = str(tmp_path / "third")
    assert export.main([*words, "--quantize", "int8", "--triton", str(tmp_path / "other")]) == 64
    assert "TorchScript cannot read quantised rows" in capsys.readouterr().err
