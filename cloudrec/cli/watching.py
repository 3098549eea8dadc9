"""`status --watch`: the newest state under a clock, and below it what has changed."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING

import click

from cloudrec.cli.output import duration
from cloudrec.cli.plain import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SHOWN = 8  # changes
_CLEAR = "\033[2J\033[H"  # clear the screen, go home
_BOLD, _NORMAL = "\033[1m", "\033[0m"

Look = tuple[str, "Mapping[str, str]"]  # the text, and the state of each thing by its name


def watch(look: Callable[[], Look], interval_s: float) -> None:
    """Print what `look` returns again and again, until Ctrl-C.

    Args:
        look: returns the text, and what is compared with the time before.
        interval_s: seconds between two looks.
    """
    before: Mapping[str, str] | None = None
    happened: deque[tuple[float, str]] = deque(maxlen=_SHOWN)
    is_terminal = sys.stdout.isatty()
    while True:
        text, now = look()
        at = time.time()
        if before is not None:
            happened.extend((at, change) for change in changes(before, now))
        before = now
        clock = f"{_clock(at)}, every {duration(interval_s)}"
        lines = [f"{_clock(moment)}  {change}" for moment, change in happened]
        if is_terminal:
            marked = [
                f"{_BOLD}{plain(line)}{_NORMAL}" if moment == at else plain(line)
                for line, (moment, _) in zip(lines, happened, strict=True)
            ]
            below = "\n".join(["", "changes:", *marked]) if marked else ""
            click.echo(f"{_CLEAR}{clock}; Ctrl-C ends it\n\n{plain(text)}{below and chr(10) + below}")
        else:
            newest = [line for line, (moment, _) in zip(lines, happened, strict=True) if moment == at]
            click.echo(plain("\n".join([clock, *(f"changed: {line}" for line in newest), text, ""])))
        sys.stdout.flush()
        time.sleep(interval_s)


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what is new, gone or different, a line each."""
    found = [f"{name}: {state} (new)" for name, state in now.items() if name not in before]
    found += [
        f"{name}: {before[name]} -> {state}"
        for name, state in now.items()
        if name in before and before[name] != state
    ]
    return found + [f"{name}: gone" for name in before if name not in now]


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))
