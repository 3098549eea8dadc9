"""What mkdocs calls while it builds the site: adds the repository's own pages, and leads links to them.

A page of docs/ may link to a page or file elsewhere in the repository, as ../infra/aws/README.md, which
works on a forge. The site has these files under repository/.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PREFIX = "repository/"
_PAGES = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "benchmarks/results/*.md",
    "examples/*/README.md",
    "infra/*/*",
)
_LINK = re.compile(r"(\]\()(?!\w+:|#)([^)\s]+)(\))")
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the repository's pages, and an index of each folder that a page links to."""
    for pattern in _PAGES:
        for path in sorted(ROOT.glob(pattern)):
            name = PREFIX + path.relative_to(ROOT).as_posix()
            added = File.generated(config, name, abs_src_path=str(path), inclusion=InclusionLevel.NOT_IN_NAV)
            files.append(added)
    results = sorted(ROOT.glob("benchmarks/results/*.md"))
    listed = "\n".join(f"- [{path.stem}]({path.name})" for path in results)
    index = f"# Measured\n\n{listed}\n"
    name = f"{PREFIX}benchmarks/results/README.md"
    files.append(File.generated(config, name, content=index, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links out of docs/ to the copies, and links of these into docs/."""
    del config
    here = page.file.src_uri

    def leads(match: re.Match[str]) -> str:
        target, _, anchor = match[2].partition("#")
        new = posixpath.relpath(site_name(here, target, files), posixpath.dirname(here) or ".")
        return f"{match[1]}{new}{'#' + anchor if anchor else ''}{match[3]}"

    outside = _FENCE.split(markdown)
    fences = _FENCE.findall(markdown)
    mapped = [_LINK.sub(leads, part) for part in outside]
    return "".join(part + fence for part, fence in zip(mapped, [*fences, ""], strict=True))


def site_name(here: str, target: str, files: Files) -> str:
    """Return the site's name of what a link of a page leads to."""
    own = here.removeprefix(PREFIX) if here.startswith(PREFIX) else f"docs/{here}"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(own), target))
    name = path.removeprefix("docs/") if path.startswith("docs/") else PREFIX + path
    folder = f"{name}/README.md"
    return folder if files.get_file_from_path(name) is None and files.get_file_from_path(folder) else name
