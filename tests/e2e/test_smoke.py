"""The smoke job by the command line, on each engine that a registered machine launches to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.support_launchers import ENGINES

PARAMETERS = ["local", *(pytest.param(name, marks=pytest.mark.soak) for name in ("ray", "slurm"))]


def _cloudrec(home: Path, variables: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cloudrec", *words],
        env={**os.environ, **variables, "CLOUDREC_HOME": str(home)},
        cwd=home.parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PARAMETERS)
def test_every_rank_reports_and_an_all_reduce_equals_the_world_size(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    folder = tmp_path / "engine"
    folder.mkdir()
    with ENGINES[name](folder) as engine:
        settings: Mapping[str, Any] = engine.usual.get("settings", {})
        told = [
            word for key, value in settings.items() for word in ("--set", f"train.settings.{key}={value}")
        ]
        assert _cloudrec(home, {}, "up", "local", "--yes").returncode == 0
        doctor = ("doctor", "--cluster", "local", "--smoke", "--launcher", name, "-o", "json")
        done = _cloudrec(home, engine.variables, *doctor, *_size(name), *told)
        assert done.returncode == 0, done.stderr
        found = {check["check"]: check for check in json.loads(done.stdout)["findings"]}
        assert found["smoke: ranks"]["found"].startswith("2 on ")
        assert found["smoke: all-reduce"]["found"] == "2"
        assert "GB/s a rank" in found["smoke: all-to-all bandwidth"]["found"]
        assert "GB/s bus bandwidth" in found["smoke: all-reduce bandwidth"]["found"]
        assert list((home / "runs").iterdir()) == [], "nothing is left of it"


def test_a_bandwidth_below_half_of_the_hardwares_is_a_warning_that_names_both(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert _cloudrec(home, {}, "up", "local", "--yes").returncode == 0
    nvlink = ("--set", 'train.env.INTRA_NODE_BANDWIDTH="900000000000"')  # no CPU exchanges 450 GB/s
    done = _cloudrec(
        home, {}, "doctor", "--cluster", "local", "--smoke", "--nproc-per-node", "2", *nvlink, "-o", "json"
    )
    assert done.returncode == 0, done.stderr
    found = {check["check"]: check for check in json.loads(done.stdout)["findings"]}
    for name in ("all-to-all", "all-reduce"):
        slow = found[f"smoke: {name} bandwidth"]
        assert slow["ok"] is False
        assert slow["needed"] == "225.00, half of the hardware's 450.00"


def _size(name: str) -> tuple[str, ...]:
    """Two ranks: on one machine, or one on each of two."""
    return ("--nproc-per-node", "2") if name == "local" else ("--set", "train.nodes=2")
