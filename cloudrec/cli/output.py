"""The output on stdout: a table for people, or exactly one JSON or YAML document for programs.

A document is held back until the command has ended. An error that follows it becomes a part of it (`error`)
instead of a second document, which would be no valid JSON together with the first.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from cloudrec.cli.plain import one_line, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SCHEMA_VERSION = 1
FORMATS = ("table", "wide", "json", "yaml")
_NARROWEST = 16  # characters of a column of text
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_chosen = {"format": "table", "width": "terminal"}
_held: dict[str, Any] = {}  # the command's document, until it is printed


def choose_format(name: str) -> None:
    """Store the output format of this command and of its errors; `wide` is a table with all columns."""
    _chosen["format"] = "table" if name == "wide" else name
    _chosen["width"] = "any" if name == "wide" else "terminal"


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


def next_step(*steps: str) -> None:
    """Print what to do next, to stderr; a program that reads a document needs none of it.

    Args:
        steps: commands with what each does, such as "`cloudrec status` shows it".
    """
    if chosen_format() == "table":
        click.echo(plain(f"next: {'; '.join(steps)}"), err=True)


def flush() -> None:
    """Print the document of the command that has ended, if it has one."""
    if _held:
        _print({"schema_version": SCHEMA_VERSION, **_held})
        _held.clear()


def emit_error(message: str, remedy: str | None, code: int) -> None:
    """Print an error as a part of the one document, so that a program never has to parse prose."""
    _held["error"] = {"message": message, "remedy": remedy, "exit_code": code}
    flush()


def width() -> int | None:
    """Return the columns of the terminal, or those in COLUMNS; None for any width, as in a pipe."""
    if _chosen["width"] == "any":
        return None
    columns_given = os.environ.get("COLUMNS", "")
    if columns_given.isdecimal() and int(columns_given) > 0:
        return int(columns_given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):  # no terminal
        return None


def fitted(
    headers: Sequence[str], rows: Sequence[Sequence[object]], *, first: Sequence[str], more: str
) -> str:
    """Format rows in columns within the width of the terminal; see `columns`.

    The least important columns are left out until the others fit, and a line says which, and where they are.

    Args:
        headers: the names of the columns.
        rows: the cells.
        first: the names by importance; the last is left out first, and the first one never.
        more: where the columns are that are left out.
    """
    limit = width()
    left_out: list[str] = []
    while True:
        places = [place for place, header in enumerate(headers) if header not in left_out]
        text = columns(
            [headers[place] for place in places], [[row[place] for place in places] for row in rows]
        )
        widest = max(map(len, text.splitlines()))
        if limit is None or widest <= limit or len(left_out) == len(first) - 1:
            break
        left_out.append(first[len(first) - 1 - len(left_out)])
    if not left_out:
        return text
    hidden = [header for header in headers if header in left_out]
    note = f"not shown: {', '.join(hidden)} ({more})"
    lines = textwrap.wrap(note, limit or len(note), break_long_words=False, break_on_hyphens=False)
    return "\n".join([text, *lines])


def wrapped(headers: Sequence[str], rows: Sequence[Sequence[object]], *, texts: Sequence[str]) -> str:
    """Format rows in columns within the width of the terminal; see `columns`.

    Columns of text continue on the next line; a word that is longer than its column, too.

    Args:
        headers: the names of the columns.
        rows: the cells.
        texts: the names of the columns of text.
    """
    whole, limit = columns(headers, rows), width()
    if limit is None or max(map(len, whole.splitlines())) <= limit:
        return whole
    cells = [["-" if cell is None else one_line(str(cell)) for cell in row] for row in rows]
    natural = [max(len(row[place]) for row in [list(headers), *cells]) for place in range(len(headers))]
    places = sorted((headers.index(name) for name in texts), key=lambda place: natural[place])
    room = limit - 2 * (len(headers) - 1) - sum(natural) + sum(natural[place] for place in places)
    for done, place in enumerate(places):  # the narrowest first: what it leaves is for the others
        natural[place] = min(natural[place], max(room // (len(places) - done), _NARROWEST))
        room -= natural[place]
    lines: list[Sequence[str]] = []
    for row in cells:
        parts = [
            textwrap.wrap(cell, natural[place], break_on_hyphens=False) if place in places else [cell]
            for place, cell in enumerate(row)
        ]
        lines += zip_longest(*parts, fillvalue="")
    return columns(headers, lines)


def listed(headers: Sequence[str], row: Sequence[object]) -> str:
    """Format one row as a table, or with a line for each cell if that is too wide for the terminal."""
    text, limit = columns(headers, [row]), width()
    if limit is None or max(map(len, text.splitlines())) <= limit:
        return text
    longest = max(map(len, headers))
    cells = ["-" if cell is None else one_line(str(cell)) for cell in row]
    return "\n".join(f"{header.ljust(longest)}  {cell}" for header, cell in zip(headers, cells, strict=True))


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
