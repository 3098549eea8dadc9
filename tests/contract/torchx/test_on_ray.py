"""`torchx run -s ray` on a real Ray of two machines: submit, status and log."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.torchx.support_torchx import HOME, ROOT, interpreter
from tests.trainer.support_dataset import write_dataset

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
NETWORK = ("unshare", "-n", "--fork", "--pid", "--mount-proc", "--kill-child")
SMALL = (
    *("--embedding_dim", "8", "--dense_arch_layer_sizes", "8", "--over_arch_layer_sizes", "8,1"),
    *("--global_batch_size", "50", "--num_epochs", "1", "--log_interval", "10", "--threads", "1"),
)


def test_two_machines_train_together_with_status_and_log(tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray[default] is not installed")
    probe = subprocess.run([*NETWORK, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no network namespace here: {probe.stderr.strip()}")
    interpreter()
    write_dataset(tmp_path / "data", train_rows=503, test_rows=100, num_dense=3, num_sparse=4)
    script = str(Path(__file__).with_name("ray_cluster.sh"))
    component = (
        "-j",
        "2x1",
        "--cpu",
        "1",
        "--python",
        sys.executable,
        "--results",
        str(tmp_path / "results"),
    )
    done = subprocess.run(
        [
            *(*NETWORK, "bash", script, str(tmp_path), str(HOME), str(ROOT)),
            *(*component, "--", "--dataset_path", str(tmp_path / "data"), *SMALL),
        ],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert "State: SUCCEEDED" in printed, printed[-5000:]
    assert "[rank 1]" in printed, printed[-5000:]
    assert "finished at step 11 of 11, 503 samples" in printed
    summary = json.loads((tmp_path / "results" / "summary.json").read_text(encoding="utf-8"))
    assert summary["world_size"] == 2
