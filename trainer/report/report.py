"""The reports of a run, written by rank 0: metrics.jsonl, TensorBoard, summary.json and printed lines."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import platform
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from trainer.base.errors import ConfigError, TrainerError
from trainer.report.trackers import Trackers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from torch.utils.tensorboard import SummaryWriter

    from cloudrec_contract.printed import StepLine

_LOG = logging.getLogger(__name__)
SCHEMA_VERSION = 1
SECONDS_BETWEEN_LINES = 5.0
BAR_WIDTH = 30  # characters
_MOST_WAITING = 16 << 20  # bytes of records that wait for space on the disk


class LineFile:
    """A file of lines that never ends a run: what cannot be written now, as on a full disk, is written later.

    Beyond 16 MiB of waiting lines, new ones are dropped.

    Args:
        path: of the file; it is created, or appended to.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._waiting = b""
        self._failed = False

    def write(self, line: str) -> None:
        """Append a line, after those that wait."""
        if len(self._waiting) < _MOST_WAITING:
            self._waiting += line.encode() + b"\n"
        self._flush()

    def _flush(self) -> None:
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self._descriptor, self._waiting) :]
        except OSError as error:
            if not self._failed:
                _LOG.warning("%s cannot be written now, so its lines wait: %s", self._path, error)
            self._failed = True
            return
        self._failed = False

    def close(self) -> None:
        """Write the lines that wait, if that is possible now, and close the file."""
        self._flush()
        with suppress(OSError):
            os.close(self._descriptor)


class Reporter:
    """Writes the reports if `active`; otherwise every call does nothing.

    Args:
        directory: the output folder.
        active: whether this rank reports.
        trackers: services that get the numbers of metrics.jsonl, too; None for none.
    """

    def __init__(self, directory: Path, *, active: bool, trackers: Trackers | None = None) -> None:
        self.directory = directory
        self.active = active
        self._metrics: LineFile | None = None
        self._board: SummaryWriter | None = None
        self._trackers = trackers or Trackers({})
        self._last_often = time.monotonic()
        self._on_terminal = active and sys.stdout.isatty()
        self._bar = ""  # the text on the terminal's last line

    def __enter__(self) -> Self:
        if self.active:
            # It takes up to a second of the processor, which the other ranks of the machine need meanwhile.
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - only where it is used

            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                self._metrics = LineFile(self.directory / "metrics.jsonl")
            except OSError as error:
                raise ConfigError(f"output_dir {self.directory} cannot be written: {error}") from error
            self._board = SummaryWriter(str(self.directory / "tensorboard"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            print(flush=True)
        if self._metrics is not None:
            self._metrics.close()
        if self._board is not None:
            with suppress(OSError):  # of a full disk: TensorBoard's file is a copy
                self._board.close()

    def record(self, kind: str, step: int, **values: object) -> None:
        """Append an object to metrics.jsonl, and its numbers to TensorBoard."""
        if self._metrics is None:
            return
        self._metrics.write(json.dumps({"kind": kind, "step": step, **values, "time": time.time()}))
        numbers = _numbers(kind, values)
        self._trackers.record(numbers, step)
        if self._board is None:
            return
        try:
            for name, value in numbers.items():
                self._board.add_scalar(name, value, step)
        except OSError as error:  # its own thread could not write, and has ended
            _LOG.warning("TensorBoard's file cannot be written, and gets no more points: %s", error)
            self._board = None

    def say(self, text: str, *, often: bool = False, everywhere: bool = False) -> None:
        """Print a line for users.

        Args:
            text: the line.
            often: print it only if the last such line is some seconds old.
            everywhere: print it on inactive ranks, too, because it is about this rank.
        """
        now = time.monotonic()
        if not (self.active or everywhere) or (often and now - self._last_often < SECONDS_BETWEEN_LINES):
            return
        if often:  # other lines do not count: those of checkpoints may come more often than this
            self._last_often = now
        with suppress(OSError):  # of a full disk: training matters more than its log
            self._wipe()
            print(text, flush=True)

    def advance(self, line: StepLine) -> None:
        """Show the progress: a bar that is updated on a terminal; otherwise a line every few seconds."""
        if not self._on_terminal:
            self.say(line.text(), often=True)
            return
        self._wipe()
        done = BAR_WIDTH * line.step // max(line.steps, 1)
        self._bar = f"[{'#' * done}{'-' * (BAR_WIDTH - done)}] {line.step}/{line.steps}  {line.values}"
        print(self._bar, end="", flush=True)

    def _wipe(self) -> None:
        if self._bar:
            print("\r" + " " * len(self._bar) + "\r", end="")
            self._bar = ""

    def summarise(self, values: Mapping[str, object]) -> None:
        """Write summary.json atomically."""
        if not self.active:
            return
        path = self.directory / "summary.json"
        temporary = path.with_suffix(".tmp")
        text = json.dumps({"schema_version": SCHEMA_VERSION, **values, "versions": versions()}, indent=2)
        try:
            temporary.write_text(text + "\n", encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            raise TrainerError(
                f"{path} cannot be written: {error}; the model is in the last checkpoint: make room, and "
                "start again, which resumes from it"
            ) from error


def _numbers(kind: str, values: Mapping[str, object]) -> dict[str, int | float]:
    tasks: Any = values.get("tasks", {})
    of_tasks = {f"{task}/{name}": value for task, found in tasks.items() for name, value in found.items()}
    return {
        f"{kind}/{name}": value
        for name, value in {**values, **of_tasks}.items()
        if isinstance(value, (int, float))
    }


def versions() -> dict[str, str | None]:
    """Return the versions of the packages that results depend on; None for one that is not installed."""
    fbgemm = _version("fbgemm-gpu") or _version("fbgemm-gpu-cpu")
    found: dict[str, Any] = {name: _version(name) for name in ("torch", "torchrec", "cloudrec")}
    return {**found, "fbgemm": fbgemm, "python": platform.python_version()}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
