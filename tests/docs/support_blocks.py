"""The fenced blocks of README.md and docs/, and what is done with each.

A block of `sh` or `console` is run, one of `python` is run or written to the file that the line before it
names, and one of `yaml` or `json` is parsed. A comment before a block says otherwise:

    <!-- not run (KIND): WHY -->         its commands are parsed only; KIND is one of KINDS
    <!-- run by tests/... -->            that test runs it
    <!-- output -->                      what the block before it prints, compared loosely
    <!-- text -->                        a picture, a layout or a formula
    <!-- blocks run by tests/... -->     once in a page: that test runs its commands and files
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = (
    "real account",
    "GPU",
    "container engine",
    "kept cluster",  # of Kubernetes, Ray or Slurm, which the reader has
    "asks",  # a question on a terminal
    "long",
)
LANGUAGES = ("sh", "console", "python", "yaml", "json", "text", "diff")
_NOT_RUN = re.compile(r"<!-- not run \(([^)]+)\): (.+) -->")
_BLOCK_BY = re.compile(r"<!-- run by (\S+) -->")
_BY = re.compile(r"<!-- blocks run by (\S+) -->")
_FILE = re.compile(r"`([\w./-]+\.\w+)`:")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block.

    Attributes:
        page: its page, from the root of the repository.
        line: that of the fence, from 1.
        language: what follows the fence.
        text: its lines.
        file: the file that it is, by the line before it.
        mark: the comment before it.
    """

    page: str
    line: int
    language: str
    text: str
    file: str = ""
    mark: str = ""

    @property
    def not_run(self) -> tuple[str, str] | None:
        """The kind and the reason, if it is marked so."""
        found = _NOT_RUN.fullmatch(self.mark)
        return (found[1], found[2]) if found else None

    @property
    def run_by(self) -> str | None:
        """The test that runs it, if it is marked so."""
        found = _BLOCK_BY.fullmatch(self.mark)
        return found[1] if found else None

    @property
    def is_run_here(self) -> bool:
        """Whether the runner runs it, unless another test runs the whole page."""
        return self.not_run is None and self.run_by is None and self.language in {"sh", "console", "python"}

    @property
    def commands(self) -> list[str]:
        """The commands of a console block, without what they print; lines that end with \\ are joined."""
        joined = self.text.replace("\\\n", " ")
        if self.language == "console" and re.search(r"^\$ ", joined, re.MULTILINE):
            return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
        return [line for line in joined.splitlines() if line.strip()]


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page and its blocks."""

    name: str
    text: str
    blocks: list[Block] = field(repr=False)

    @property
    def run_by(self) -> str | None:
        """The test that runs the page's commands, if it has a separate one."""
        found = _BY.search(self.text)
        return found[1] if found else None

    @property
    def part(self) -> str:
        """Which test runs the page: tutorials, sandbox, here or, where there is nothing to run, none."""
        if self.run_by is not None or not any(each.is_run_here for each in self.blocks):
            return "none"
        if "/tutorials/" in self.name:
            return "tutorials"
        return (
            "sandbox" if any("--sandbox" in each.text for each in self.blocks if each.is_run_here) else "here"
        )


def names() -> list[str]:
    """Return the pages: README.md and everything in docs/."""
    return ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))]


def page(name: str) -> Page:
    """Read a page."""
    return parse(name, (ROOT / name).read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Page:
    """Return the blocks of a text."""
    lines, blocks, at = text.splitlines(), [], 0
    while at < len(lines):
        if not lines[at].startswith("```"):
            at += 1
            continue
        end = next(each for each in range(at + 1, len(lines)) if lines[each].startswith("```"))
        before = [line for line in lines[max(0, at - 4) : at] if line.strip()]
        file = _FILE.fullmatch(before[-1]) if before else None
        above = before[:-1] if file else before
        blocks.append(
            Block(
                page=name,
                line=at + 1,
                language=lines[at][3:].strip(),
                text="\n".join(lines[at + 1 : end]) + "\n",
                file=file[1] if file else "",
                mark=above[-1] if above and above[-1].startswith("<!-- ") else "",
            )
        )
        at = end + 1
    return Page(name=name, text=text, blocks=blocks)
