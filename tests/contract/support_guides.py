"""Follows a guide of docs/: writes its files into a copy of the packages, and applies its changes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_FILE = re.compile(r"^`([\w./-]+)`:\n\n```(?:python|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CHANGE = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def follow(guide: str, copy: Path) -> None:
    """Write the guide's files into the copy, and apply its changes."""
    text = (DOCS / guide).read_text(encoding="utf-8")
    files, changes = _FILE.findall(text), _CHANGE.findall(text)
    assert files
    for name, content in files:
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    for change in changes:
        applied = subprocess.run(
            ["git", "apply", "--recount", "-"],
            input=change,
            cwd=copy,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert applied.returncode == 0, f"{guide} is out of date:\n{applied.stderr}"
