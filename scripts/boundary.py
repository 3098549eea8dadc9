"""Check that foreign data enters through the boundary; `make lint` runs it.

    python scripts/boundary.py

Foreign is what comes from files of others, buckets, clusters and clouds. ruff refuses the parsers of JSON,
YAML and TOML (banned-api in pyproject.toml). Four other ways around the boundary are refused here:

- `response.json()`: use `safe_json(response.content)`, whose limits and error are ours;
- `Record(**safe_object(text))`: use `record_of(Record, ...)`, which checks the types of the values;
- `home.clusters / name` and the like: use `home.cluster(name)`, which refuses a name that is a path;
- `folder / name` in a module that gets names from a store: use `safe_join(folder, name)`.

A line with the comment `boundary: REASON` is accepted.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[1]
PACKAGES = ("cloudrec", "cloudrec_contract", "cloudrec_server", "trainer")
# Modules that list a store's names, or read names from a document of a store.
READ_NAMES = frozenset(
    {
        "cloudrec/agent/lease/leader.py",
        "cloudrec/agent/upload/staging.py",
        "cloudrec/app/run/manage.py",
        "cloudrec/data/check.py",
        "cloudrec/launchers/base/results.py",
        "cloudrec/observe/runs.py",
        "trainer/serving/exported.py",
        "trainer/serving/publication/reader.py",
    }
)
_FOLDERS = {"runs", "clusters", "costs", "locks"}
_ACCEPTED = "boundary: "


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A way around the boundary."""

    path: str
    line: int
    advice: str

    def __str__(self) -> str:
        """As a compiler prints an error."""
        return f"{self.path}:{self.line}: {self.advice}"


def findings(path: str, text: str) -> Iterator[Finding]:
    """Return what a module reads or joins beside the boundary."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        advice = _advice(path, node)
        if advice and _ACCEPTED not in lines[node.lineno - 1]:  # type: ignore[attr-defined] # an expression has a line
            yield Finding(path=path, line=node.lineno, advice=advice)  # type: ignore[attr-defined]


def _advice(path: str, node: ast.AST) -> str:
    if isinstance(node, ast.Call) and any(map(_is_unchecked, node.keywords)):
        return "write record_of(Record, values) for Record(**values)"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_bare = node.func.attr == "json" and not node.args and not node.keywords
        return "write safe_json(response.content) for response.json()" if is_bare else ""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
        return ""
    if isinstance(node.left, ast.Attribute) and node.left.attr in _FOLDERS and not _is_ours(node.right):
        return f"write home.{node.left.attr.rstrip('s')}(name) for a join with home.{node.left.attr}"
    if path in READ_NAMES and not _is_ours(node.right):
        return "write safe_join(folder, name) for a join with a name from a store"
    return ""


def _is_unchecked(keyword: ast.keyword) -> bool:
    """Return whether a call gets its arguments by name from a JSON text."""
    value = keyword.value
    return (
        keyword.arg is None
        and isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id in {"safe_json", "safe_object"}
    )


def _is_ours(node: ast.expr) -> bool:
    """Return whether a name is written in the code: a literal, a constant, or a checked name."""
    if isinstance(node, ast.JoinedStr):
        return all(_is_ours(part.value) for part in node.values if isinstance(part, ast.FormattedValue))
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in {
            "check_name",
            "check_part",
            "_plain",
            "int",
            "len",
        }
    if isinstance(node, ast.Constant):
        return True
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return bool(name) and name.upper() == name


def main(*, root: Path = ROOT, paths: Sequence[str] = PACKAGES) -> int:
    """Print the findings in the packages; the exit code of the process."""
    found = [
        finding
        for package in paths
        for file in sorted((root / package).rglob("*.py"))
        for finding in findings(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))
    ]
    print("\n".join(map(str, found)) or "boundary: foreign data is read and joined by the safe functions")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
