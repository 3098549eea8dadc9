"""A real Kubernetes control plane on loopback, where a folder with its programs exists.

CLOUDREC_TEST_CONTROL_PLANE names the folder; without it, it is `shared/kube` beside the repository.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "CLOUDREC_TEST_CONTROL_PLANE"
_BESIDE = Path(__file__).parents[3] / "shared" / "kube"
_PROGRAM = "control_plane.py"
KINDS = _BESIDE.parent / "crds"


def folder() -> Path:
    """Return the folder of the programs."""
    return Path(os.environ.get(VARIABLE) or _BESIDE)


def why_no_control_plane() -> str | None:
    """Return why a control plane cannot be started here; None if it can."""
    program = folder() / _PROGRAM
    return None if program.is_file() else f"there is no control plane to start: {program} does not exist"


@contextmanager
def control_plane() -> Iterator[Path]:
    """Run a control plane until the block ends; yields an administrator's kubeconfig."""
    command = [sys.executable, str(folder() / _PROGRAM)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise RuntimeError("a pipe was asked for")
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{command[1]} ended with {process.wait()}; its errors are above")
            yield Path(json.loads(line)["kubeconfig"])
        finally:
            process.terminate()
            process.wait()
