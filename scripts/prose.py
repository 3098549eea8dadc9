"""Check that the project's prose uses plain words; `make lint` runs it.

    python scripts/prose.py             fail where a folder has more findings than scripts/prose.json allows
    python scripts/prose.py --list [PATH...]    print each finding with what to write instead
    python scripts/prose.py --figures   print how often each word occurs in 10,000 words
    python scripts/prose.py --update    lower the allowance to what is found; refused if the total grows

Prose is every docstring, comment, message (a string of three words or more), test name and Markdown page.
Text between backticks is code. The allowance shrinks as prose is edited, so a word that is removed stays out.
A line of README.md or docs/ has at most 100 characters, code included.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).parents[1]
ALLOWANCE = "scripts/prose.json"

# A word or a phrase, as a regular expression, and what to write instead.
VOCABULARY = {
    r"told|tells?|telling": "say, report, show, name, pass",
    r"nobody": "no one, or name what is missing",
    r"somebody|someone": "a user, another process",
    r"who(so)?ever": "the user, the process, anyone who",
    r"whom": "name the person or process",
    r"anew": "again",
    r"afresh": "again",
    r"thereof|therein|whence|lest|aught|naught": "a modern word",
    r"beforehand": "first, before",
    r"of ours": "our, cloudrec's",
    r"of (its|their|one's|your) own": "separate, its own ...",
    r"(go|goes|going|gone|went) on": "continue, resume",
    r"stands|stood still": "is, waits",
    r"for ever": "forever, without end",
    r"for good": "permanently",
    r"all the same": "anyway, nevertheless",
    r"without a word": "silently",
    r"to be had": "available",
    r"in the place of": "instead of",
    r"is under way": "is in progress",
    r"heeds?|heeded": "follow, respect",
    r"fares?|fared": "does, its state",
    r"mend(s|ed|ing)?": "repair, fix",
    r"bears?|borne": "has, carries",
    r"strays?|leftovers?": "orphaned resource",
    r"keeps? (its|their) fingers": "does not touch",
}
_CODE = re.compile(r"``.*?``|`[^`\n]*`", re.DOTALL)
_BANNED = re.compile(rf"\b(?:{'|'.join(VOCABULARY)})\b", re.IGNORECASE)
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_MESSAGE_WORDS = 3
_WIDEST = 100  # characters of a page's line
_COMMENT = re.compile(r"#(?!!)\s?(?P<text>.*)")


@dataclass(frozen=True, kw_only=True)
class Prose:
    """A piece of prose.

    Attributes:
        path: its file, from the root of the repository.
        line: its first line, from 1.
        kind: docstring, comment, message, test name or page.
        text: its words, with code taken out.
    """

    path: str
    line: int
    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A banned word in a piece of prose."""

    path: str
    line: int
    kind: str
    found: str
    word: str  # its key in VOCABULARY

    def __str__(self) -> str:
        """As a compiler prints an error."""
        return f"{self.path}:{self.line}: {self.kind}: '{self.found}': write {VOCABULARY[self.word]}"


def prose_of(path: str, text: str) -> Iterator[Prose]:
    """Return the prose of a Python file or a Markdown page."""
    if path.endswith(".md"):
        blanked = _FENCE.sub(_blank, text)
        yield Prose(path=path, line=1, kind="page", text=_CODE.sub(_blank, blanked))
        return
    tree = ast.parse(text)
    docstrings = {id(node): node for node in _docstrings(tree)}
    strings: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        ):
            strings.append(node)
            words = _text_of(node)
            kind = "docstring" if id(node) in docstrings else "message"
            if kind == "docstring" or len(words.split()) >= _MESSAGE_WORDS:
                yield Prose(path=path, line=node.lineno, kind=kind, text=_CODE.sub(_blank, words))
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield Prose(path=path, line=node.lineno, kind="test name", text=node.name.replace("_", " "))
    for line, comment in _comments(text, strings):
        yield Prose(path=path, line=line, kind="comment", text=_CODE.sub(_blank, comment))


def findings(prose: Iterable[Prose]) -> Iterator[Finding]:
    """Return the banned words of pieces of prose, with their lines."""
    for piece in prose:
        for match in _BANNED.finditer(piece.text):
            yield Finding(
                path=piece.path,
                line=piece.line + piece.text.count("\n", 0, match.start()),
                kind=piece.kind,
                found=match.group(),
                word=next(word for word in VOCABULARY if re.fullmatch(word, match.group(), re.IGNORECASE)),
            )


def wide_lines(path: str, text: str) -> Iterator[str]:
    """Return an error for each line of a page of the documentation that is too long."""
    if path == "README.md" or (path.startswith("docs/") and path.endswith(".md")):
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > _WIDEST:
                yield f"{path}:{number}: {len(line)} characters, at most {_WIDEST}: break the line"


def room_of(path: str) -> str:
    """Return the folder that a file's findings count for: two levels deep, or the page itself."""
    folders = Path(path).parts[:-1]
    return "/".join(folders[:2]) or path


def excess(counts: Counter[str], allowed: dict[str, int]) -> dict[str, int]:
    """Return the folders with more findings than they may have, and by how many."""
    return {
        room: count - allowed.get(room, 0) for room, count in counts.items() if count > allowed.get(room, 0)
    }


def main(argv: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Check, list or update the prose of a git working tree; the exit code of the process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print each finding")
    parser.add_argument("--figures", action="store_true", help="print each word's count in 10,000 words")
    parser.add_argument("--update", action="store_true", help="lower the allowance to what is found")
    parser.add_argument("paths", nargs="*", help="files or folders for --list and --figures; all if empty")
    arguments = parser.parse_args(argv)
    if arguments.figures:
        return _print_figures(_texts(root, arguments.paths))
    texts = list(_texts(root, arguments.paths))
    files = [(path, text) for path, text in texts if _may_hold(text)]
    found = [each for path, text in files for each in findings(prose_of(path, text))]
    if arguments.list:
        print("\n".join(str(each) for each in sorted(found, key=lambda each: (each.path, each.line))))
        return 0
    counts = Counter(room_of(each.path) for each in found)
    allowed: dict[str, int] = json.loads((root / ALLOWANCE).read_text(encoding="utf-8"))
    if arguments.update:
        return _update(root / ALLOWANCE, counts, allowed)
    wide = [error for path, text in texts for error in wide_lines(path, text)]
    print("".join(f"{error}\n" for error in wide), end="")
    return 1 if wide else _check(found, counts, allowed)


def _check(found: Sequence[Finding], counts: Counter[str], allowed: dict[str, int]) -> int:
    over = excess(counts, allowed)
    for room, more in sorted(over.items()):
        print("\n".join(str(each) for each in found if room_of(each.path) == room))
        print(f"{room}: {counts[room]} findings, {more} more than scripts/prose.json allows")
    if not over:
        print(f"prose: {counts.total()} findings, {sum(allowed.values())} allowed")
    return 1 if over else 0


def _update(file: Path, counts: Counter[str], allowed: dict[str, int]) -> int:
    before, after = sum(allowed.values()), counts.total()
    if after > before:
        print(f"{after} findings are more than the {before} allowed; reword the new ones (--list shows them)")
        return 1
    file.write_text(json.dumps(dict(sorted(counts.items())), indent=2) + "\n", encoding="utf-8")
    print(f"allowance lowered from {before} to {after}")
    return 0


def _print_figures(texts: Iterable[tuple[str, str]]) -> int:
    words: Counter[str] = Counter()
    found: Counter[tuple[str, str]] = Counter()
    for path, text in texts:
        pieces = list(prose_of(path, text))
        for piece in pieces:
            words[piece.kind] += len(piece.text.split())
        found.update((each.kind, each.word) for each in findings(pieces))
    kinds = sorted(words)
    print(f"{'per 10,000 words':34}" + "".join(f"{kind:>12}" for kind in kinds))
    print(f"{'words':34}" + "".join(f"{words[kind]:12,}" for kind in kinds))
    for word in VOCABULARY:
        print(
            f"{word:34}" + "".join(f"{1e4 * found[kind, word] / max(words[kind], 1):12.1f}" for kind in kinds)
        )
    return 0


def _texts(root: Path, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py", "*.md"],  # noqa: S607
        cwd=root, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    wanted = tuple(paths)
    for path in sorted(
        set(listed.split("\0")) - {"", "scripts/prose.py", "tests/unit/scripts/test_prose.py"}
    ):
        is_wanted = not wanted or any(
            path == each or path.startswith(f"{each.rstrip('/')}/") for each in wanted
        )
        if is_wanted and (root / path).is_file():
            yield path, (root / path).read_text(encoding="utf-8")


def _may_hold(text: str) -> bool:
    """Whether to parse a file: most have no banned word at all, and parsing costs most of the time."""
    return _BANNED.search(text.replace("_", " ")) is not None


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.value


def _text_of(node: ast.Constant | ast.JoinedStr) -> str:
    """Return a string's text; an f-string's parts belong to their whole, so they are no strings again."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    text = ""
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += str(part.value)
            part.value = 0
        else:
            text += "X"  # a value, which may be a word's end
    return text


def _comments(text: str, strings: Iterable[ast.expr]) -> Iterator[tuple[int, str]]:
    """Return comments with their lines: what follows a # outside of every string."""
    lines = [line.encode() for line in text.split("\n")]
    for node in strings:  # a # inside a string begins no comment
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        for row in range(first, last + 1):
            start = node.col_offset if row == first else 0
            stop = (node.end_col_offset or 0) if row == last else len(lines[row])
            lines[row] = lines[row][:start] + b" " * (stop - start) + lines[row][stop:]
    for number, line in enumerate(lines, 1):
        if b"#" in line and (match := _COMMENT.search(line.decode())) is not None:
            yield number, match["text"]


def _blank(match: re.Match[str]) -> str:
    """Replace code by nothing but its line breaks, so that lines keep their numbers."""
    return "\n" * match.group().count("\n")


if __name__ == "__main__":
    sys.exit(main())
