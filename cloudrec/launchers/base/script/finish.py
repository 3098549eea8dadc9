"""The stop file and the summary of a run whose program is a user's script."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from cloudrec.home import write_atomically
from cloudrec.launchers.base import outputs
from cloudrec.launchers.base.script_program import STOP

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec.launchers.base.run_folder import RunFolder


def note_finished(run: RunFolder) -> None:
    """Write the status "finished" into the run's summary, beside what the script has written there.

    Every rank of every node has ended with exit code 0. StorageError if the disk refuses.
    """
    records = outputs.json_lines(outputs.read_tail(run.metrics_file))
    steps = [record["step"] for record in records if isinstance(record.get("step"), int)]
    last = {"step": steps[-1]} if steps else {}
    summary = {**last, **outputs.read_summary(run), "status": "finished"}
    write_atomically(run.summary_file, json.dumps(summary, indent=2) + "\n")


def note_stop(run: Path) -> None:
    """Create the file that announces a stop to a script, before its ranks get SIGTERM.

    The trainer reads no such file. A disk that refuses it does not matter: SIGTERM follows.
    """
    with suppress(OSError):
        (run / STOP).touch()
