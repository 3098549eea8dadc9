"""The pages of examples/, executed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from cloudrec_contract.safe_json import safe_object

ROOT = Path(__file__).parents[2]
_COMMAND = re.compile(r"^    \$ (.+)$", re.MULTILINE)


def run_example(name: str, folder: Path) -> Path:
    """Copy examples/NAME into a folder, and run all commands of its page there; return the copy."""
    copy = folder / "example"
    shutil.copytree(ROOT / "examples" / name, copy)
    for command in _COMMAND.findall((copy / "README.md").read_text()):
        run_line(command, copy)
    return copy


def run_line(command: str, folder: Path) -> str:
    """Run a line of a page, and return what it prints."""
    program, *rest = shlex.split(command)
    words = [sys.executable, *(["-m", "cloudrec"] if program == "cloudrec" else []), *rest]
    environment = {
        **os.environ,
        "CLOUDREC_HOME": str(folder / "home"),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file."""
    return safe_object(path.read_bytes())
