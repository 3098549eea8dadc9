"""The reports of a run, written by rank 0: metrics.jsonl, TensorBoard, summary.json and printed lines."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
import time
from typing import TYPE_CHECKING, Any, Self, TextIO

from torch.utils.tensorboard import SummaryWriter

from trainer.base.errors import ConfigError
from trainer.report.trackers import Trackers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

SCHEMA_VERSION = 1
SECONDS_BETWEEN_LINES = 5.0
BAR_WIDTH = 30  # characters


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
        self._metrics: TextIO | None = None
        self._board: SummaryWriter | None = None
        self._trackers = trackers or Trackers({})
        self._last_often = time.monotonic()
        self._on_terminal = active and sys.stdout.isatty()
        self._bar = ""  # the text on the terminal's last line

    def __enter__(self) -> Self:
        if self.active:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                self._metrics = (self.directory / "metrics.jsonl").open("a", encoding="utf-8")
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
            self._board.close()

    def record(self, kind: str, step: int, **values: object) -> None:
        """Append an object to metrics.jsonl, and its numbers to TensorBoard."""
        if self._metrics is None or self._board is None:
            return
        line = {"kind": kind, "step": step, **values, "time": time.time()}
        self._metrics.write(json.dumps(line) + "\n")
        self._metrics.flush()
        tasks: Any = values.get("tasks", {})
        of_tasks = {f"{task}/{name}": value for task, found in tasks.items() for name, value in found.items()}
        numbers = {
            f"{kind}/{name}": value
            for name, value in {**values, **of_tasks}.items()
            if isinstance(value, (int, float))
        }
        for name, value in numbers.items():
            self._board.add_scalar(name, value, step)
        self._trackers.record(numbers, step)

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
        self._wipe()
        print(text, flush=True)

    def advance(self, step: int, steps: int, text: str) -> None:
        """Show the progress: a bar that is updated on a terminal; otherwise a line every few seconds."""
        if not self._on_terminal:
            self.say(f"step {step}/{steps}  {text}", often=True)
            return
        self._wipe()
        done = BAR_WIDTH * step // max(steps, 1)
        self._bar = f"[{'#' * done}{'-' * (BAR_WIDTH - done)}] {step}/{steps}  {text}"
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
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(path)


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
