"""Whether a rank is attempted at all: `cloudrec.pod rank`, as torchrun starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cloudrec.home import make_private
from cloudrec.pod.codes import AGAIN, FINISHED
from cloudrec.pod.settings import PodSettings


def _attempt(work: Path) -> int:
    variables = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "CLOUDREC_WORK": str(work)}
    command = [sys.executable, "-m", "cloudrec.pod", "rank", "--", sys.executable, "-c", ""]
    return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode


def test_ranks_of_an_agent_that_was_told_to_stop_are_not_attempted_and_those_of_the_next_agent_are(
    tmp_path: Path,
) -> None:
    folder = PodSettings(work=tmp_path).folder
    make_private(folder.logs)
    folder.ledger.append("started", launch=1)
    folder.ledger.append("stopping", launch=1)
    assert _attempt(tmp_path) == AGAIN
    folder.ledger.append("started", launch=1)  # as when an agent is sent to meet the others elsewhere
    assert _attempt(tmp_path) == FINISHED
