"""What the trainer leaves in a run's folder: its summary, its metrics, its checkpoints, its last error."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.launch.folder import newest_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.runspec import RunSpec

ATTEMPT_HEADER = "=== launch "
_TAIL_BYTES = 64 * 1024
_ERROR_LIMIT = 500  # characters of an error line that are worth repeating
_RAISED = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit)\b.*")


def read_tail(path: Path, *, limit: int = _TAIL_BYTES) -> str:
    """Return the end of a text file from the first whole line on, "" when there is no such file.

    Args:
        path: the file.
        limit: bytes to read at most.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - limit, 0))
            data = file.read(limit)
    except OSError:
        return ""
    if size > limit:
        data = data[data.find(b"\n") + 1 :]
    return data.decode("utf-8", errors="replace")


def json_lines(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a text of JSON lines; damaged lines are skipped."""
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def read_summary(run: RunFolder) -> dict[str, Any]:
    """Return the trainer's summary, {} when there is none or it is damaged."""
    try:
        document = json.loads(run.summary_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def has_finished(run: RunFolder) -> bool:
    """Tell whether the trainer says that it has done all its work."""
    return read_summary(run).get("status") == "finished"


def started_since(run: RunFolder, moment: float) -> bool:
    """Tell whether the trainer has begun an attempt at or after a moment (seconds since the epoch)."""
    records = json_lines(read_tail(run.metrics_file))
    return any(record.get("kind") == "start" and _number(record.get("time")) >= moment for record in records)


def committed_step(run: RunFolder, spec: RunSpec) -> int | None:
    """Return the step of the newest committed checkpoint on this machine's disk, or None."""
    folder = checkpoint_folder(run, spec)
    return newest_checkpoint(folder) if folder else None


def checkpoint_folder(run: RunFolder, spec: RunSpec) -> Path | None:
    """Return where the trainer's checkpoints are, None when that is an object store."""
    named = flag_value(spec.trainer_flags, "checkpoint_dir") or _setting(
        spec.trainer_config, "checkpoint_dir"
    )
    if not named and spec.target.get("kubeconfig") and spec.storage:
        named = f"{spec.storage.rstrip('/')}/runs/{spec.name}/checkpoints"  # where its pods put them
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


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def flag_value(flags: tuple[str, ...], name: str) -> str | None:
    """Return the value that the last `--name VALUE` or `--name=VALUE` gives, with - or _ in the name."""
    value = None
    for position, flag in enumerate(flags):
        key, equals, given = flag.partition("=")
        if key.startswith("--") and key[2:].replace("-", "_") == name:
            value = given if equals else next(iter(flags[position + 1 : position + 2]), None)
    return value


def _setting(config: Mapping[str, Any], name: str) -> str | None:
    value = config.get(name, config.get(name.replace("_", "-")))
    return str(value) if value else None
