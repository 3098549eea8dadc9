"""The driver on a real Ray cluster with a token; CLOUDREC_RAY may name another environment's bin folder.

Ray always listens on all interfaces, so the cluster has its own network namespace.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_LIMIT_S = 300


@pytest.mark.soak
def test_the_driver_restarts_ends_and_moves_agents_on_a_real_cluster(tmp_path: Path) -> None:
    ray = os.environ.get("CLOUDREC_RAY") or str(Path(sys.executable).parent)
    if not (Path(ray) / "ray").is_file():
        pytest.skip(f"{ray} has no Ray; CLOUDREC_RAY may name the bin folder of another environment")
    own_network = ("unshare", "-n", "--fork", "--pid", "--mount-proc", "--kill-child")
    if subprocess.run([*own_network, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make its own network")
    for number in (2, 3, 4):
        (tmp_path / f"machine-{number}").mkdir()
    launch = {
        "nodes": 2,
        "min_nodes": 2,
        "max_restarts": 1,
        "gpus": 0,
        "port": 29400,
        "agent": ["python", str(_HERE / "ray_agent.py"), "--", "torchrun"],
        "program": ["--no-python", "trainer"],
    }
    (tmp_path / "launch.json").write_text(json.dumps(launch))
    script = [str(_HERE / "ray_cluster.sh"), str(tmp_path), ray, str(_HERE.parents[1])]
    ended = subprocess.run(
        [*own_network, "bash", *script], capture_output=True, text=True, check=False, timeout=_LIMIT_S
    )
    logs = "\n".join(path.read_text() for path in sorted(tmp_path.glob("*.log")))
    assert ended.stdout.splitlines() == ["again 0", "final 64", "lost 0"], ended.stderr + logs
    assert (tmp_path / "machine-3" / "saved").exists(), "the other agent was asked to end, and waited for"
    (start,) = (tmp_path / "machine-4" / "starts").read_text().splitlines()
    assert "--local-addr 127.0.0.4" in start, "what was lost was begun again on the machine that came"
