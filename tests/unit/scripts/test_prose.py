import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from scripts import prose

MODULE = '''"""What is told here."""

NAME = "a # b"  # nobody reads it


def test_nobody_is_told() -> None:
    """A `told` in code is no prose."""
    raise ValueError(f"the run {NAME} goes on without {NAME}")
'''


def _found(path: str, text: str) -> list[tuple[int, str, str]]:
    return sorted((each.line, each.kind, each.found) for each in prose.findings(prose.prose_of(path, text)))


def test_prose_of_each_kind_is_read_and_code_is_not() -> None:
    assert _found("module.py", MODULE) == [
        (1, "docstring", "told"),
        (3, "comment", "nobody"),
        (6, "test name", "nobody"),
        (6, "test name", "told"),
        (8, "message", "goes on"),
    ]


def test_code_in_a_page_is_not_read_and_lines_keep_their_numbers() -> None:
    page = "# Title\n\n```\nnobody\n```\n\nIt is `told`.\nIt stands.\n"
    assert _found("docs/page.md", page) == [(8, "page", "stands")]


def test_part_of_a_word_is_not_a_finding() -> None:
    assert _found("page.md", "retelling, bystanders, foretold and affords") == []


def test_every_replacement_is_allowed() -> None:
    for word, replacement in prose.VOCABULARY.items():
        assert _found("page.md", replacement) == [], word


def test_a_folder_cannot_get_more_findings() -> None:
    counts = Counter({"cloudrec/cli": 3, "trainer/loop": 1})
    assert prose.excess(counts, {"cloudrec/cli": 3, "trainer/loop": 2}) == {}
    assert prose.excess(counts, {"cloudrec/cli": 2}) == {"cloudrec/cli": 1, "trainer/loop": 1}


def test_the_allowance_only_shrinks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "scripts").mkdir()
    allowance = tmp_path / prose.ALLOWANCE
    allowance.write_text('{"module.py": 4}')
    assert prose.main([], root=tmp_path) == 1
    assert prose.main(["--update"], root=tmp_path) == 1
    assert "module.py: 5 findings, 1 more than" in capsys.readouterr().out
    allowance.write_text('{"module.py": 5, "gone": 3}')
    assert prose.main(["--update"], root=tmp_path) == 0
    assert json.loads(allowance.read_text()) == {"module.py": 5}
    assert prose.main([], root=tmp_path) == 0


def test_a_line_of_a_page_may_not_be_too_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for folder in ("scripts", "docs/tutorials"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / prose.ALLOWANCE).write_text("{}")
    (tmp_path / "NOTES.md").write_text("x" * 200 + "\n")  # not of the documentation
    page = tmp_path / "docs" / "tutorials" / "page.md"
    page.write_text("short\n" + "x" * 100 + "\n")
    assert prose.main([], root=tmp_path) == 0
    page.write_text("short\n" + "x" * 101 + "\n")
    assert prose.main([], root=tmp_path) == 1
    assert "docs/tutorials/page.md:2: 101 characters, at most 100" in capsys.readouterr().out
