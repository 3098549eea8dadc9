"""The progress of `up` and `down`: one live table on a terminal, and a line for each step in a pipe."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from cloudrec.cli.console import announce
from cloudrec.cli.output import duration
from cloudrec.cli.plain import one_line, plain
from cloudrec.engine.durations import Durations, left_s
from cloudrec.engine.plan import PlanStep
from cloudrec.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from types import FrameType

    from rich.console import ConsoleRenderable

    from cloudrec.engine.clock import Clock
    from cloudrec.engine.plan import Action, Plan
    from cloudrec.home import Home

_BEGINS = ("creating", "deleting", "replacing", "changing")
_STOPPING = "stopping: the calls that are under way end first"
_REFRESHES = 4  # a second
_OTHER_LINES = 4  # of the terminal that the table leaves free
_LEAST_ROWS = 3


@dataclass(kw_only=True)
class _Step:
    """What one resource still needs."""

    name: str  # as in `Durations`
    began: float | None = None  # of the clock, since its first event
    event: str = ""
    is_done: bool = False


@dataclass(kw_only=True)
class Work:
    """The steps of one command, counted and timed.

    Attributes:
        durations: what such steps took last.
        clock: the cloud's time, so that a stand-in's durations are those of the cloud.
    """

    durations: Durations
    clock: Clock
    title: str = ""
    total: int = 0
    usual_minutes: tuple[int, int] | None = None
    is_stopping: bool = False
    _steps: dict[str, _Step] = field(default_factory=dict)
    _needs: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    _places: dict[str, str] = field(default_factory=dict)
    _took: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _lock: Lock = field(default_factory=Lock)
    _screen: Any = None  # rich's Live, on a terminal
    _last: str = ""

    def begin(
        self,
        provider: str,
        plan: Plan,
        needs: Mapping[str, AbstractSet[str]] | None = None,
    ) -> None:
        """Take up the steps of a plan, once it has been agreed to.

        Args:
            provider: the cluster's provider.
            plan: what is done.
            needs: key -> keys whose steps end first; None for the plan's own order of creation.
        """
        verbs = {action.key: _verb(action) for action in plan.changes}
        self._steps = {
            key: _Step(name=f"{provider} {verb} {key.partition('/')[0]}") for key, verb in verbs.items()
        }
        self._needs = {
            key: {need for need in wanted if need in verbs}
            for key, wanted in (needs if needs is not None else _order(plan.changes)).items()
            if key in verbs
        }
        self._places = {
            candidate.key: action.key
            for action in plan.changes
            if action.resource is not None
            for candidate in action.resource.candidates
        }
        self.title, self.total, self.usual_minutes = plan.cluster, len(verbs), plan.minutes
        self._began = time.monotonic()
        if _has_screen():
            self._open()

    def line(self, text: str) -> None:
        """Print one line that belongs to no step."""
        if self._screen is None:
            announce(text)
            return
        from rich.text import Text  # noqa: PLC0415  # only on a terminal

        self._last = text
        self._screen.console.print(Text(plain(text)))

    def step(self, key: str, event: str) -> None:
        """Take up an event of a resource; called from the engine's threads."""
        with self._lock:
            self._count(self._places.get(key, key), event)
            done = self.done
        if self._screen is None:
            is_end = event in {"ready", "gone"}
            count = f"{done} of {self.total}, " if is_end and self.total else ""
            announce(f"{key}: {event} ({count}{duration(self.elapsed_s)})")
        elif event.startswith("unavailable"):
            self.line(f"{key}: {event}")

    @property
    def done(self) -> int:
        """How many steps are done."""
        return sum(step.is_done for step in self._steps.values())

    @property
    def elapsed_s(self) -> float:
        """The real seconds since the work began."""
        return time.monotonic() - self._began

    @property
    def left_s(self) -> float | None:
        """The estimate of the real seconds until all steps are done; None if it is not known."""
        with self._lock:
            now = self.clock.now()
            left = left_s(
                {**{key: set() for key in self._steps}, **self._needs},
                {key: self.durations.of(step.name) for key, step in self._steps.items()},
                {key: now - step.began for key, step in self._steps.items() if step.began is not None},
                {key for key, step in self._steps.items() if step.is_done},
            )
        return None if left is None else left / self.clock.speed

    @property
    def head(self) -> str:
        """The count, the time so far and the estimate in one line."""
        progress = f"cluster {self.title}: {self.done} of {self.total}, {duration(self.elapsed_s)}"
        if self.is_stopping:
            return f"{progress}; {_STOPPING}"
        left = self.left_s
        if left is not None and self.done == self.total:
            return progress
        if left is not None:
            return f"{progress}, about {duration(left)} left"
        usual = self.usual_minutes
        rule = f" ({usual[0]} to {usual[1]} minutes in all, as a rule)" if usual else ""
        return f"{progress}, time left unknown{rule}"

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the steps in progress, the longest first: key, event, time so far, usual time."""
        with self._lock:
            now, speed = self.clock.now(), self.clock.speed
            going = [
                (step.began, key, step)
                for key, step in self._steps.items()
                if step.began is not None and not step.is_done
            ]
        found = []
        for began, key, step in sorted(going, key=lambda each: each[:2]):
            usual = self.durations.of(step.name)
            last = "last time unknown" if usual is None else f"last time {duration(usual / speed)}"
            found.append((key, one_line(step.event), duration((now - began) / speed), last))
        return found

    def end(self) -> None:
        """Take the table away, keep what steps took, and print the count."""
        screen, self._screen = self._screen, None
        if screen is not None:
            screen.stop()
        if not self._steps:
            return
        with suppress(StorageError):  # it only feeds the next estimate
            self.durations.keep(self._took)
        announce(f"{self.done} of {self.total} steps in {duration(self.elapsed_s)}")

    def _count(self, key: str, event: str) -> None:
        now = self.clock.now()
        step = self._steps.get(key)
        if step is None:  # it appeared meanwhile, as what a controller made
            if not self._steps or event not in {"deleting", "creating"}:
                return
            verb = "delete" if event == "deleting" else "create"
            name = f"{next(iter(self._steps.values())).name.partition(' ')[0]} {verb} {key.partition('/')[0]}"
            step = self._steps[key] = _Step(name=name)
            self.total += 1
        if event.startswith(_BEGINS) and step.began is None:
            step.began = now
        step.event = event
        is_removal = step.name.split(" ")[1] == "delete"
        if event == ("gone" if is_removal else "ready"):
            step.is_done = True
            if step.began is not None:
                self._took[step.name] = max(self._took.get(step.name, 0.0), now - step.began)

    def _open(self) -> None:
        from rich.console import Console  # noqa: PLC0415  # only on a terminal
        from rich.live import Live  # noqa: PLC0415  # as above

        console = Console(stderr=True, highlight=False)
        self._screen = Live(
            console=console, get_renderable=self._render, refresh_per_second=_REFRESHES, transient=True
        )
        self._screen.start()

    def _render(self) -> ConsoleRenderable:
        from rich.console import Group  # noqa: PLC0415  # only on a terminal
        from rich.table import Table  # noqa: PLC0415  # as above
        from rich.text import Text  # noqa: PLC0415  # as above

        console = self._screen.console if self._screen is not None else None
        most = max((console.height if console is not None else 24) - _OTHER_LINES, _LEAST_ROWS)
        rows = self.rows()
        table = Table.grid(padding=(0, 2), expand=False)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=None)
        table.add_column(no_wrap=True, overflow="ellipsis")
        table.add_column(no_wrap=True, justify="right", min_width=6)
        table.add_column(no_wrap=True, overflow="ellipsis", style="dim")
        for row in rows[:most]:
            table.add_row(*(Text(plain(cell)) for cell in row))
        parts: list[ConsoleRenderable] = [
            Text(plain(self.head), style="bold", no_wrap=True, overflow="ellipsis"),
            table,
        ]
        if len(rows) > most:
            parts.append(Text(f"and {len(rows) - most} more"))
        return Group(*parts)


def _verb(action: Action) -> str:
    return "delete" if action.step is PlanStep.DELETE else action.step.value


def _order(changes: Sequence[Action]) -> dict[str, set[str]]:
    return {
        action.key: set(action.resource.needs) if action.resource is not None else set() for action in changes
    }


def _has_screen() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def working(home: Home, clock: Clock) -> Iterator[Work]:
    """Yield the progress of one command; its table is gone at the end, also after an error or Ctrl-C."""
    work = Work(durations=Durations(home.durations), clock=clock)
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: FrameType | None) -> None:
        if not work.is_stopping and work.total:
            work.is_stopping = True
            if not _has_screen():
                os.write(2, f"{_STOPPING}\n".encode())  # a buffered stream may be in use just now
        signal.default_int_handler(number, frame)

    heard = before is signal.default_int_handler  # else a shell's background job, which ignores Ctrl-C
    if heard:
        signal.signal(signal.SIGINT, stop)
    try:
        yield work
    finally:
        try:
            work.end()
        finally:
            if heard:
                signal.signal(signal.SIGINT, before)
