"""`cloudrec.log`: metrics of a user's own script, appended to the run's metrics.jsonl."""

from __future__ import annotations

import json
import math
import os
import time
from typing import Final

METRICS_VARIABLE: Final = "CLOUDREC_METRICS"
CHECKPOINTS_VARIABLE: Final = "CLOUDREC_CHECKPOINTS"


def log(*, step: int, kind: str = "train", **values: float | str | None) -> None:
    """Append one line with the metrics of a step, such as `cloudrec.log(step=10, loss=0.3)`.

    `status`, `ui` and `report` show step, loss, samples_per_s, epoch, and, of the kind "eval", auc. Other
    values are kept in the file. Rank 0 alone writes, and outside of a run nothing is written.

    Args:
        step: the step, counted from the start of the run, also after a resume.
        kind: train, eval or checkpoint.
        values: numbers or texts; a tensor's number is its `.item()`. A number that is not finite is null.

    Raises:
        TypeError: a value is neither a number, a text nor None.
    """
    record: dict[str, object] = {"kind": kind, "step": int(step), "time": time.time()}
    for name, value in values.items():
        record[name] = _plain(name, value)
    path = os.environ.get(METRICS_VARIABLE)
    if not path or os.environ.get("RANK", "0") != "0":
        return
    # One write of a whole line: a reader, or a process that is killed, leaves no half of it.
    data = (json.dumps(record) + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _plain(name: str, value: object) -> object:
    if value is None or isinstance(value, str | bool | int):
        return value
    try:
        number = float(value)  # type: ignore[arg-type]  # also numpy's and torch's numbers
    except (TypeError, ValueError) as error:
        kind = type(value).__name__
        raise TypeError(f"cloudrec.log: {name} is a {kind}, which is no number and no text") from error
    return number if math.isfinite(number) else None
