"""TorchX in a separate environment, since its requirements conflict with those of the Kubernetes client."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import sysconfig
import venv
from functools import cache
from pathlib import Path
from typing import Any

import pytest

VERSION = "0.7.0"
ROOT = Path(__file__).parents[3]
HOME = Path(sys.prefix) / f"torchx-{VERSION}"
_INSTALL_S = 240
_ENTRY = "[torchx.file]\nget_file_contents = cloudrec.torchx:file_contents\n"  # the version in pyproject.toml


@cache
def interpreter() -> Path:
    """The Python of that environment, created at first use; skip the test where that fails."""
    python = HOME / "bin" / "python"
    with HOME.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (HOME / "complete").exists():
            problem = _make(python)
            if problem:
                pytest.skip(f"torchx {VERSION} cannot be installed here: {problem}")
            (HOME / "complete").touch()
    return python


def _make(python: Path) -> str:
    """Install TorchX, and append this environment's packages to its path; return the error, if any."""
    venv.create(HOME, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*command, f"torchx=={VERSION}"], capture_output=True, text=True, timeout=_INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"pip had not ended after {_INSTALL_S} s"
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2]
    (packages,) = (HOME / "lib").glob("python*/site-packages")
    (packages / "zz_ours.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    entry = packages / "cloudrec_of_the_tests-0.dist-info"
    entry.mkdir()
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: cloudrec-of-the-tests\nVersion: 0\n")
    (entry / "entry_points.txt").write_text(_ENTRY)
    return ""


def environment(**more: str) -> dict[str, str]:
    """The variables of an activated shell of that environment."""
    path = f"{HOME / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", **more}


def torchx(*words: str, folder: Path, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
    """Run a command of the environment."""
    command = [str(interpreter()), "-m", "torchx.cli.main", *words]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def ask(program: str, *arguments: str, folder: Path, timeout_s: float = 240) -> Any:
    """Run a program in the environment; return its last line, parsed as JSON."""
    done = subprocess.run(
        [str(interpreter()), "-c", program, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
