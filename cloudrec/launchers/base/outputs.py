"""Reads the trainer's files in a run's folder: summary, metrics, checkpoints, and the last error of a log."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.home import open_file, read_text
from cloudrec.launchers.base.run_folder import newest_checkpoint
from cloudrec_contract.safe_json import safe_json, safe_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec

ATTEMPT_HEADER = "=== launch "
_TAIL_BYTES = 64 * 1024
_ERROR_LIMIT = 500  # characters of an error line that a status shows
_RAISED = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit)\b.*")


def read_tail(path: Path, *, limit: int = _TAIL_BYTES) -> str:
    """Return the last whole lines of a text file; "" if it cannot be read.

    Args:
        path: the file.
        limit: the maximum number of bytes.
    """
    try:
        with open_file(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - limit, 0))
            data = file.read(limit)
    except OSError:
        return ""
    if size > limit:
        data = data[data.find(b"\n") + 1 :]
    return data.decode("utf-8", errors="replace")


def json_lines(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON Lines text, without damaged lines."""
    for line in text.splitlines():
        try:
            record = safe_json(line, numbers="unknown")  # a loss that diverged is NaN
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def read_summary(run: RunFolder) -> dict[str, Any]:
    """Return the trainer's summary; {} if the file is missing or damaged."""
    try:
        return safe_object(read_text(run.summary_file), numbers="unknown")
    except (OSError, ValueError):
        return {}


def has_finished(run: RunFolder) -> bool:
    """Return whether the trainer's summary has the status "finished"."""
    return read_summary(run).get("status") == "finished"


def started_since(run: RunFolder, moment: float) -> bool:
    """Return whether the trainer has begun an attempt at or after a moment (seconds since the epoch)."""
    records = json_lines(read_tail(run.metrics_file))
    return any(record.get("kind") == "start" and number(record.get("time")) >= moment for record in records)


def committed_step(run: RunFolder, spec: RunSpec) -> int | None:
    """Return the step of the newest committed checkpoint on this machine's disk, or None."""
    folder = checkpoint_folder(run, spec)
    return newest_checkpoint(folder) if folder else None


def checkpoint_folder(run: RunFolder, spec: RunSpec) -> Path | None:
    """Return the folder of the trainer's checkpoints; None if they are in an object store."""
    named = spec.trainer.checkpoint_dir
    if not named and spec.leaves_results_in_storage:
        named = spec.checkpoints
    if not named:
        return run.path / "checkpoints"
    if named.startswith("file://"):
        return Path(named.removeprefix("file://"))
    return None if "://" in named else Path(named)


def last_error(log: Path) -> str | None:
    """Return the last error that a rank printed in its newest attempt: the trainer's own, or an exception."""
    lines = read_tail(log).splitlines()
    headers = [number for number, line in enumerate(lines) if line.startswith(ATTEMPT_HEADER)]
    lines = [line.strip() for line in lines[headers[-1] + 1 if headers else 0 :]]
    own = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
    raised = [line for line in lines if _RAISED.fullmatch(line)]
    found = own or raised
    return found[-1][:_ERROR_LIMIT] if found else None


def number(value: object) -> float:
    """Return a value of another program's file as a float; 0 if it is no number."""
    try:
        return float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:  # an integer of hundreds of digits
        return 0.0
