"""The site's navigation, from the list of pages in docs/README.md: a page is listed once, by its author.

Each heading of the second level is a section of the navigation. The links to pages before the first one are
the tutorials. Of several links to one page the first counts.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "mkdocs.yml"
_START = "\nnav:\n"
_NOTE = "  # written by `python -m scripts.site` from the list on the first page\n"
_FIRST = "Tutorials"
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\(\s*([\w/-]+\.md)(?:#[\w-]+)?\s*\)")


def navigation() -> str:
    """Return mkdocs.yml with the navigation that docs/README.md has."""
    text = FILE.read_text(encoding="utf-8")
    kept = text[: text.index(_START)]
    return f"{kept}{_START}{_NOTE}{_rows((ROOT / 'docs' / 'README.md').read_text(encoding='utf-8'))}"


def _rows(page: str) -> str:
    names = [_FIRST, *_HEADING.findall(page)]
    parts = _HEADING.split(page)[::2]
    seen: set[str] = set()
    lines = ["  - Start: README.md"]
    for name, part in zip(names, parts, strict=True):
        pages = [link for link in dict.fromkeys(_LINK.findall(part)) if link not in seen]
        seen.update(pages)
        if pages:
            lines += [f"  - {name}:", *(f"      - {link}" for link in pages)]
    return "\n".join(lines) + "\n"
