"""The page of errors: each message that the code can raise for users, with its remedy and its exit code.

It is read from the source, so a message that changes without the page fails a test. What is computed is `…`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import cloudrec.errors
import trainer.base.errors
from scripts.site.text import WIDTH, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NAME = "reference/errors.md"
ROOT = Path(__file__).parents[2]
_HEAD = """# Errors

The messages that commands end with, and what helps, generated from the source
(`python -m scripts.site`). Search for a few words of yours: `…` is a value, such as a name or a
number. A message without a remedy says itself what to change.
[Troubleshooting](../troubleshooting.md) begins with what you see instead, and
[commands](commands.md#exit-codes) explains the exit codes.
"""
_VALUE = "…"
_LEAST_WORDS = 3  # shorter ones are parts of messages
# The parts of the code, the first that fits, and what they are for a user.
_AREAS = (
    ("cloudrec/providers/aws", "AWS"),
    ("cloudrec/providers/azure", "Azure"),
    ("cloudrec/providers/gcp", "Google Cloud"),
    ("cloudrec/providers/kubernetes", "Kubernetes clusters that you have"),
    ("cloudrec/kubernetes", "Kubernetes"),
    ("cloudrec/providers", "Clusters"),
    ("cloudrec/app/run", "Runs"),
    ("cloudrec/launchers", "Runs"),
    ("cloudrec/agent", "Runs"),
    ("cloudrec/observe", "Runs"),
    ("cloudrec/data", "Data"),
    ("cloudrec/app/data", "Data"),
    ("cloudrec/image", "Images"),
    ("cloudrec/app/image", "Images"),
    ("cloudrec/planning", "Plans and costs"),
    ("cloudrec/app/planning", "Plans and costs"),
    ("cloudrec/app/money", "Plans and costs"),
    ("cloudrec/spec", "The spec, flags and variables"),
    ("cloudrec/cli", "The spec, flags and variables"),
    ("cloudrec/sandbox", "Stand-ins"),
    ("cloudrec/app", "Clusters"),
    ("cloudrec/engine", "Clusters"),
    ("cloudrec_server", "The server"),
    ("trainer/checkpoint", "The trainer: checkpoints"),
    ("trainer/data", "The trainer: data"),
    ("trainer/publishing", "The trainer: publishing"),
    ("trainer", "The trainer"),
    ("cloudrec", "Other"),
)


@dataclass(frozen=True, order=True)
class Message:
    """A message of the code."""

    text: str
    code: int
    remedy: str


def page() -> str:
    """Return the page."""
    by_area: dict[str, set[Message]] = defaultdict(set)
    codes = exit_codes()
    for package in ("cloudrec", "cloudrec_server", "trainer"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            area = next(area for prefix, area in _AREAS if name.startswith(prefix))
            by_area[area].update(messages(path.read_text(encoding="utf-8"), codes))
    order = list(dict.fromkeys(area for _, area in _AREAS))
    return _HEAD + "".join(_section(area, by_area[area]) for area in order if by_area[area])


def exit_codes() -> dict[str, int]:
    """Return the classes of errors with their exit codes."""
    found = {}
    for module, base in (
        (cloudrec.errors, cloudrec.errors.CloudrecError),
        (trainer.base.errors, trainer.base.errors.TrainerError),
    ):
        for name, each in vars(module).items():
            if isinstance(each, type) and issubclass(each, base):
                found[name] = int(each.exit_code)
    return found


def messages(source: str, codes: dict[str, int]) -> Iterator[Message]:
    """Return the messages of a module: each first argument of an error that is a text."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in codes
            and node.args
        ):
            text = template(node.args[0])
            remedies = [each.value for each in node.keywords if each.arg == "remedy"]
            remedy = template(remedies[0]) if remedies else ""
            if text is not None and len(re.findall(r"[a-z]{2,}", text)) >= _LEAST_WORDS:
                yield Message(text=text, code=codes[node.func.id], remedy=remedy or "")


def template(node: ast.expr) -> str | None:
    """Return a text with … for each value; None if it is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [template(each) if isinstance(each, ast.Constant) else _VALUE for each in node.values]
        return "".join(part or "" for part in parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = template(node.left), template(node.right)
        return None if left is None and right is None else (left or _VALUE) + (right or _VALUE)
    return None


def _section(area: str, found: Iterable[Message]) -> str:
    return f"\n## {area}\n\n" + "".join(_entry(each) for each in sorted(found))


def _entry(message: Message) -> str:
    first = wrapped(f"{_code(message.text)} Exit code {message.code}.", first="- ", rest="  ")
    if not message.remedy:
        return f"{first}\n"
    remedy = wrapped(f"Remedy: {_code(message.remedy)}", first="    - ", rest="      ", width=WIDTH)
    return f"{first}\n{remedy}\n"


def _code(text: str) -> str:
    """Return a message as code: its own backticks are quoted, and lines are joined."""
    flat = " ".join(text.split())
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"
