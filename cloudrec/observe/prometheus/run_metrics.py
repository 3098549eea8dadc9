"""The metrics of one run, from the files that its processes write: training does nothing for them."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from cloudrec.errors import DataError
from cloudrec.home import open_file
from cloudrec.launchers.base import outputs
from cloudrec.observe.metrics import finite
from cloudrec.observe.prometheus.text import Exposition, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec.launchers.base.ledger import LedgerEvent
    from cloudrec.launchers.base.run_folder import RunFolder

_MOST_VALUES = 50  # names of a script's own values
_LONGEST_LINE = 1 << 20
_OWN_KINDS = ("start", "train", "eval", "checkpoint")
_NO_VALUES = ("step", "time", "kind", "epoch", "attempt")


def _metric(name: str, kind: Kind, text: str) -> Metric:
    return Metric(name=f"cloudrec_run_{name}", kind=kind, text=text)


STEP = _metric("step", "gauge", "The newest step.")
STEPS = _metric("planned_steps", "gauge", "The number of steps to train.")
EPOCH = _metric("epoch", "gauge", "The epoch.")
ATTEMPT = _metric("attempt", "gauge", "The number of the attempt: each start of the trainer is one.")
SAMPLES = _metric("samples_total", "counter", "Samples that were trained on, over all ranks.")
LOSS = _metric("loss", "gauge", "The newest training loss.")
RATE = _metric("learning_rate", "gauge", "The learning rate.")
SPEED = _metric("samples_per_second", "gauge", "Throughput over all ranks.")
STEP_S = _metric("step_duration_seconds", "gauge", "Mean time of a step, with its wait for data.")
WAIT_S = _metric("data_wait_seconds", "gauge", "Mean time that a step waits for data.")
MEMORY = _metric("memory_bytes", "gauge", "The most memory that rank 0 had allocated on its device.")
AUC = _metric("eval_auc", "gauge", "AUC of the newest evaluation.")
LOGLOSS = _metric("eval_logloss", "gauge", "Log loss of the newest evaluation.")
NE = _metric("eval_normalized_entropy", "gauge", "Normalized entropy of the newest evaluation.")
CALIBRATION = _metric("eval_calibration_ratio", "gauge", "Predicted over observed positives.")
GOODPUT = _metric("goodput_ratio", "gauge", "Share of all time for work whose results were kept, 0 to 1.")
TIME = _metric("time_seconds_total", "counter", "All time since the first start, by its use.")
SAVED_STEP = _metric("checkpoint_step", "gauge", "Step of the newest committed checkpoint.")
SAVED_AT = _metric(
    "checkpoint_timestamp_seconds", "gauge", "When it was committed; time() less it is its age."
)
SAVED_BYTES = _metric("checkpoint_size_bytes", "gauge", "Bytes of the newest checkpoint that this run wrote.")
WRITTEN = _metric("checkpoint_bytes_total", "counter", "Bytes of all checkpoints.")
SAVES = _metric("checkpoints_total", "counter", "Checkpoints, by content: full or differential.")
STALL = _metric("checkpoint_stall_seconds", "gauge", "How long training waited for the newest one.")
STALLS = _metric("checkpoint_stall_seconds_total", "counter", "How long training waited for all of them.")
RECORD_AT = _metric("record_timestamp_seconds", "gauge", "When the newest record was written.")
RESTARTS = _metric("restarts_total", "counter", "How often ranks were started again.")
NOTICES = _metric("preemption_notices_total", "counter", "Notices that this machine is taken back.")
VALUE = _metric("value", "gauge", "A number that a script of yours writes into metrics.jsonl, by name.")
METRICS = (
    STEP,
    STEPS,
    EPOCH,
    ATTEMPT,
    SAMPLES,
    LOSS,
    RATE,
    SPEED,
    STEP_S,
    WAIT_S,
    MEMORY,
    AUC,
    LOGLOSS,
    NE,
    CALIBRATION,
    GOODPUT,
    TIME,
    SAVED_STEP,
    SAVED_AT,
    SAVED_BYTES,
    WRITTEN,
    SAVES,
    STALL,
    STALLS,
    RECORD_AT,
    RESTARTS,
    NOTICES,
    VALUE,
)


class RunGauges:
    """Follows a run's files. A scrape reads only what was added since the one before.

    Args:
        run: the run's folder.
        labels: labels of every sample, such as run and cluster.
    """

    def __init__(self, run: RunFolder, *, labels: Mapping[str, str]) -> None:
        self._run = run
        self._labels = labels
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._inode, self._read, self._rest = 0, 0, b""
        self._newest: dict[str, Mapping[str, Any]] = {}
        self._values: dict[str, float] = {}
        self._saves: Counter[str] = Counter()
        self._bytes = self._stalls = 0.0
        self._last: Mapping[str, Any] = {}

    def text(self) -> str:
        """Return the page."""
        with self._lock:
            self._follow()
            page = Exposition(labels=self._labels)
            self._add_training(page)
            self._add_checkpoints(page)
            self._add_events(page)
            return page.text()

    def _follow(self) -> None:
        """Read the lines that were added; all of them if the file was replaced."""
        try:
            with open_file(self._run.metrics_file) as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode or found.st_size < self._read:
                    self._forget()
                    self._inode = found.st_ino
                file.seek(self._read)
                while chunk := file.read(_LONGEST_LINE):
                    self._read += len(chunk)
                    *lines, self._rest = (self._rest + chunk).split(b"\n")
                    self._rest = self._rest[-_LONGEST_LINE:]
                    self._take(outputs.json_lines(b"\n".join(lines).decode("utf-8", errors="replace")))
        except OSError:
            return

    def _take(self, records: Iterable[Mapping[str, Any]]) -> None:
        for record in records:
            kind = str(record.get("kind", ""))
            self._last = record
            if kind in _OWN_KINDS:
                self._newest[kind] = record
            else:
                self._take_values(record)
            if kind == "checkpoint":
                self._saves[str(record.get("content") or "full")] += 1
                self._bytes += finite(record.get("bytes")) or 0.0
                self._stalls += finite(record.get("seconds")) or 0.0

    def _take_values(self, record: Mapping[str, Any]) -> None:
        for name, value in record.items():
            number = finite(value)
            is_room = name in self._values or len(self._values) < _MOST_VALUES
            if number is not None and name not in _NO_VALUES and is_room:
                self._values[str(name)] = number

    def _add_training(self, page: Exposition) -> None:
        train, start = self._newest.get("train", {}), self._newest.get("start", {})
        page.add(STEP, finite(self._last.get("step", train.get("step"))))
        page.add(STEPS, finite(start.get("total_steps")))
        page.add(ATTEMPT, finite(start.get("attempt")))
        page.add(RECORD_AT, finite(self._last.get("time")))
        for metric, key in (
            (EPOCH, "epoch"),
            (SAMPLES, "samples"),
            (LOSS, "loss"),
            (RATE, "lr"),
            (SPEED, "samples_per_s"),
            (STEP_S, "step_s"),
            (WAIT_S, "data_wait_s"),
            (MEMORY, "memory_bytes"),
            (GOODPUT, "goodput"),
        ):
            page.add(metric, finite(train.get(key)))
        parts = train.get("goodput_parts")
        for name, value in parts.items() if isinstance(parts, dict) else ():
            page.add(TIME, finite(value), part=str(name).removesuffix("_s"))
        scores = self._newest.get("eval", {})
        tasks = scores.get("tasks")
        of_tasks = tasks.items() if isinstance(tasks, dict) else ()
        for task, found in (("", scores), *of_tasks):
            if isinstance(found, dict):
                for metric, key in (
                    (AUC, "auc"),
                    (LOGLOSS, "logloss"),
                    (NE, "ne"),
                    (CALIBRATION, "calibration"),
                ):
                    page.add(metric, finite(found.get(key)), task=str(task))
        for name, value in self._values.items():
            page.add(VALUE, value, name=name)

    def _add_checkpoints(self, page: Exposition) -> None:
        newest = self._newest.get("checkpoint")
        if newest is None:
            return
        page.add(SAVED_STEP, finite(newest.get("step")))
        page.add(SAVED_AT, finite(newest.get("time")))
        page.add(SAVED_BYTES, finite(newest.get("bytes")))
        page.add(STALL, finite(newest.get("seconds")))
        page.add(WRITTEN, self._bytes)
        page.add(STALLS, self._stalls)
        for content, count in self._saves.items():
            page.add(SAVES, count, content=content)

    def _add_events(self, page: Exposition) -> None:
        try:
            events = self._run.ledger.read()
        except DataError:
            return
        page.add(RESTARTS, sum(event.event == "restarting" for event in events))
        page.add(
            NOTICES,
            len({(event.launch, event.details.get("attempt")) for event in events if _is_notice(event)}),
        )


def _is_notice(event: LedgerEvent) -> bool:
    end = event.details.get("end")
    return event.event == "rank_ended" and isinstance(end, dict) and end.get("machine_leaves") is True
