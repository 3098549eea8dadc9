"""The site: what is generated is current, every link leads somewhere, and a page fetches nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.site.generated import DOCS, generated
from scripts.site.navigation import FILE, navigation
from tests.docs.support_blocks import ROOT, names

_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!\w+:)([^)\s]*)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
# What a browser fetches by itself; `href` of <a> is a link, which it does not.
_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)[^>]*\ssrc=["']?(https?:[^"'\s>]+)"""
    r"""|<link(?![^>]*rel=["']?(?:canonical|next|prev))[^>]*\shref=["']?(https?:[^"'\s>]+)"""
    r"""|@import\s+["']?(https?:[^"'\s)]+)|url\(["']?(https?:[^"'\s)]+)"""
)


@pytest.mark.parametrize("name", generated())
def test_what_is_generated_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == generated()[name], "write it: python -m scripts.site"


def test_a_picture_is_well_formed_and_fetches_nothing() -> None:
    for path in sorted((DOCS / "pictures").glob("*.svg")):
        text = path.read_text(encoding="utf-8")
        assert text.startswith("<svg ")
        assert "<title>" in text
        assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]


@pytest.mark.parametrize("name", names())
def test_a_link_leads_to_a_page_and_an_anchor_that_exist(name: str) -> None:
    page = ROOT / name
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{name}: {link}"
        if anchor:
            assert anchor in _anchors(path), f"{name}: {link}"


def _anchors(path: Path) -> set[str]:
    """The anchors of a page, as forges and the site make them."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    plain = [re.sub(r"\]\([^)]*\)", "", heading) for heading in _HEADING.findall(text)]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


def test_the_navigation_is_the_list_of_the_first_page() -> None:
    assert FILE.read_text(encoding="utf-8") == navigation(), "write it: python -m scripts.site"
    page = (DOCS / "README.md").read_text(encoding="utf-8")
    sections = re.findall(r"^  - ([\w ]+):$", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == ["Tutorials", *re.findall(r"^## (.+)$", page, re.MULTILINE)]


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(name.removeprefix("docs/") for name in names() if name != "README.md") == sorted(listed)


def test_the_site_builds_strictly_and_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(names())
    for path in (*pages, *(tmp_path / "site").rglob("*.css")):
        found = [match.group() for match in _FETCHED.finditer(path.read_text(encoding="utf-8"))]
        assert found == [], path


def test_a_broken_link_and_a_page_outside_the_navigation_fail_the_build(tmp_path: Path) -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (tmp_path / "docs").mkdir()
    nav = "\nnav: [README.md]\n"
    (tmp_path / "mkdocs.yml").write_text(
        re.sub(r"\nnav:\n.*", nav, text, flags=re.DOTALL).replace("hooks:", "#")
    )
    (tmp_path / "docs" / "README.md").write_text("# Start\n\n[gone](gone.md)\n")
    (tmp_path / "docs" / "other.md").write_text("# Other\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0
    assert "other.md" in done.stderr
    assert "gone.md" in done.stderr
