"""Messages and progress on stderr: a progress bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from cloudrec.cli.plain import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PLAIN_EVERY_S = 5.0


def announce(line: str) -> None:
    """Print one line of progress to stderr."""
    click.echo(plain(line), err=True)


@contextmanager
def progress(title: str, unit: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function to call with (done, total); total None when it is not known."""
    if sys.stderr.isatty():
        with _bar(title, unit) as update:
            yield update
    else:
        yield _lines(title, unit)


@contextmanager
def _bar(title: str, unit: str) -> Iterator[Callable[[int, int | None], None]]:
    from rich.console import Console  # noqa: PLC0415  # only on a terminal
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    text = TextColumn("{task.description}")
    count = TextColumn("{task.completed:,.0f}/{task.total:,.0f} " + unit)
    with Progress(text, BarColumn(), count, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=1)

        def update(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total or max(done, 1))

        yield update


def _lines(title: str, unit: str) -> Callable[[int, int | None], None]:
    last = time.monotonic()
    told = -1

    def update(done: int, total: int | None) -> None:
        nonlocal last, told
        finished = total is not None and done >= total
        if done != told and (finished or time.monotonic() - last >= _PLAIN_EVERY_S):
            last, told = time.monotonic(), done
            announce(f"{title}: {done:,}" + (f" of {total:,}" if total else "") + f" {unit}")

    return update
