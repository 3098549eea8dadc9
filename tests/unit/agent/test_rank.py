"""`cloudrec.agent rank`, as torchrun starts it, and whether it starts the trainer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cloudrec.agent.settings import PodSettings
from cloudrec.home import make_private
from cloudrec_contract.exit_codes import FINISHED, STOPPED


def _attempt(work: Path) -> int:
    variables = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "CLOUDREC_WORK": str(work)}
    command = [sys.executable, "-m", "cloudrec.agent", "rank", "--", sys.executable, "-c", ""]
    return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode


def test_ranks_of_a_stopped_agent_are_not_started_and_those_of_the_next_agent_are(
    tmp_path: Path,
) -> None:
    folder = PodSettings(work=tmp_path).folder
    make_private(folder.logs)
    folder.ledger.append("started", launch=1)
    folder.ledger.append("stopping", launch=1)
    assert _attempt(tmp_path) == STOPPED
    folder.ledger.append("started", launch=1)  # as when an agent is sent to meet the others elsewhere
    assert _attempt(tmp_path) == FINISHED
