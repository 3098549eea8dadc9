"""The output on stdout: a table for people, or exactly one JSON or YAML document for programs.

A document is held back until the command has ended. An error that follows it becomes a part of it (`error`)
instead of a second document, which would be no valid JSON together with the first.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from cloudrec.cli.plain import one_line, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SCHEMA_VERSION = 1
FORMATS = ("table", "json", "yaml")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_chosen = {"format": "table"}
_held: dict[str, Any] = {}  # the command's document, until it is printed


def choose_format(name: str) -> None:
    """Store the output format of this command and of its errors."""
    _chosen["format"] = name


def chosen_format() -> str:
    """Return the format of this command."""
    return _chosen["format"]


def emit(document: Mapping[str, Any] | Callable[[], Mapping[str, Any]], table: str) -> None:
    """Print the text for people, or keep the document for `flush`. A command calls this once.

    A document that takes time to make is given as a function, which is called only if it is printed.
    """
    if chosen_format() == "table":
        if table:
            click.echo(plain(table))
        return
    _held.update(document() if callable(document) else document)


def flush() -> None:
    """Print the document of the command that has ended, if it has one."""
    if _held:
        _print({"schema_version": SCHEMA_VERSION, **_held})
        _held.clear()


def emit_error(message: str, remedy: str | None, code: int) -> None:
    """Print an error as a part of the one document, so that a program never has to parse prose."""
    _held["error"] = {"message": message, "remedy": remedy, "exit_code": code}
    flush()


def columns(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format rows in aligned columns, numbers to the right, as plain text that is never cut."""
    cells = [[("-" if cell is None else one_line(str(cell))) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]
    right = [
        bool(rows) and all(isinstance(row[i], int | float | None) for row in rows)
        for i in range(len(headers))
    ]

    def line(row: Sequence[str]) -> str:
        placed = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        return "  ".join(placed).rstrip()

    return "\n".join(line(row) for row in [list(headers), *cells])


def duration(seconds: float) -> str:
    """Format a duration in seconds in its two largest units."""
    if seconds < _MINUTE:
        return f"{seconds:.0f}s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f}m{seconds % _MINUTE:02.0f}s"
    if seconds < _DAY:
        return f"{seconds // _HOUR:.0f}h{seconds % _HOUR // _MINUTE:02.0f}m"
    return f"{seconds // _DAY:.0f}d{seconds % _DAY // _HOUR:02.0f}h"


def _print(document: Mapping[str, Any]) -> None:
    if chosen_format() == "yaml":
        import yaml  # noqa: PLC0415  # only for this format

        plain = json.loads(json.dumps(document))  # noqa: TID251 - its own text
        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
