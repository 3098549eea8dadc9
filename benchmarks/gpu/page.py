"""The page of results: one table a part."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path) -> str:
    """Return the page of the parts in a folder, in Markdown."""
    lines = [f"# On a GPU, {folder.name}", ""]
    for file in sorted(folder.glob("*.json")):
        part: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        where = f"{part.pop('card')}; {part.pop('machine')} Measured on {part.pop('date')}."
        lines += [f"## {file.stem}", "", where, ""]
        lines += [*_table(part), ""]
    return "\n".join(lines)


def _table(part: dict[str, Any]) -> list[str]:
    lines = ["| figure | value |", "| --- | ---: |"]
    for name, value in part.items():
        if isinstance(value, dict):
            lines += [f"| {key} | {_spell(each)} |" for key, each in value.items()]
        else:
            lines.append(f"| {name} | {_spell(value)} |")
    return lines


def _spell(value: Any) -> str:  # noqa: ANN401 - a JSON value
    if isinstance(value, dict):
        return "<br>".join(f"{key}: {_spell(each)}" for key, each in value.items())
    if isinstance(value, list) and value and all(isinstance(each, float) for each in value):
        return f"{statistics.median(value):,.0f} ({min(value):,.0f} to {max(value):,.0f})"
    if isinstance(value, list):
        return "<br>".join(" ".join(str(part).replace("|", "/") for part in each) for each in value)
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
