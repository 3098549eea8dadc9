"""`cloudrec serve` of a publication: each new version takes over, with its checkpoint's scores."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.contract.serving.support_models import RICH, export_to, learn, make_rows, predicted
from tests.contract.serving.support_server import PATIENCE_S, serving
from tests.trainer.support_publishing import publishing, steps_of


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_published_versions_are_served_one_after_the_other_without_a_pause(
    tmp_path: Path, precision: str
) -> None:
    checkpoints = learn(tmp_path / "model", RICH, checkpoint_interval=2, keep_checkpoints=20)
    steps, rows, out = steps_of(checkpoints), make_rows(2, 50), tmp_path / "out"
    assert len(steps) > 3
    quantize = {"fp32": "none"}.get(precision, precision)
    expected = {}
    for step in steps:
        words = ("--step", str(step), "--quantize", quantize)
        package = export_to(checkpoints, tmp_path / f"package-{step}", *words)
        expected[step] = predicted(package, rows, tmp_path / f"scratch-{step}")
    publishing(checkpoints, out, "--step", steps[0], "--precision", precision)
    stop, found = threading.Event(), list[tuple[int, int, list[float]]]()
    with serving(out, "--poll-seconds", "0.1", "--threads", "2") as server:

        def load() -> None:
            with server.client() as client:
                while not stop.is_set():
                    status, content, _ = client.post("/v1/score", {"rows": rows})
                    found.append((status, content["step"], content["scores"]))

        clients = [threading.Thread(target=load) for _ in range(3)]
        for each in clients:
            each.start()
        for step in steps[1:]:
            publishing(checkpoints, out, "--step", step)
            end = time.monotonic() + PATIENCE_S
            while not found or found[-1][1] != step:
                assert time.monotonic() < end, server.log
                time.sleep(0.02)
        stop.set()
        for each in clients:
            each.join()
        with server.client() as client:
            assert client.get("/v1/model").content["version"] == f"{len(steps):08d}"
    assert {status for status, _, _ in found} == {200}
    assert {step for _, step, _ in found} == set(steps)
    for _, step, scores in found:
        np.testing.assert_allclose(np.array(scores), expected[step], rtol=0, atol=1e-6)
