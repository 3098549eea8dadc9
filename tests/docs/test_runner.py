"""The runner of pages: it runs blocks in order in one shell, and reports what fails or is not printed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.docs.support_blocks import parse
from tests.docs.support_runner import Machine, loose, run_page

HERE = Machine(wheels=Path("/nonexistent"), programs=(Path(sys.prefix) / "bin", Path(sys.prefix) / "bin"))


def run(folder: Path, text: str) -> list[int]:
    """Run a page of this text; return the lines of the blocks that were run."""
    return list(run_page(parse("page.md", text), HERE, folder))


def test_blocks_share_one_shell_and_files_are_written(tmp_path: Path) -> None:
    page = """
```sh
export WORD=hello
mkdir inner && cd inner
```

`words/say.py`:

```python
import os

print(os.environ["WORD"], 12)
```

```console
$ python words/say.py
hello 99
$ pwd
.../inner
```
"""
    assert run(tmp_path, page) == [2, 9, 15]
    assert (tmp_path / "work" / "inner" / "words" / "say.py").exists()


def test_the_first_block_that_fails_is_named_and_later_ones_are_not_run(tmp_path: Path) -> None:
    page = "```sh\ntrue\n```\n\n```sh\necho seen; false; echo unseen\n```\n\n```sh\ntouch later\n```\n"
    with pytest.raises(pytest.fail.Exception, match=r"page\.md:5: 1\nseen\n$"):
        run(tmp_path, page)
    assert not (tmp_path / "work" / "later").exists()


@pytest.mark.parametrize(
    "page",
    [
        "```console\n$ echo one\ntwo\n```\n",
        "```console\n$ printf 'one\\ntwo\\n'\ntwo\none\n```\n",
        "```sh\necho one\n```\n\n<!-- output -->\n\n```text\ntwo\n```\n",
    ],
)
def test_what_a_page_shows_must_be_printed_in_that_order(page: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not printed"):
        run(tmp_path, page)


def test_marked_blocks_are_not_run(tmp_path: Path) -> None:
    page = "<!-- not run (GPU): needs one -->\n\n```sh\ntouch gpu\n```\n\n```sh\ntouch here\n```\n"
    assert run(tmp_path, page) == [7]
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["here"]


def test_a_page_finds_no_real_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AZURE_CLIENT_SECRET", "GOOGLE_APPLICATION_CREDENTIALS", "KUBECONFIG"):
        monkeypatch.setenv(name, "real")
    page = "```console\n$ env | grep -c =real || true\n0\n$ echo $HOME\n.../home\n```\n"
    assert run(tmp_path, page) == [1]
    shown = (tmp_path / "out" / "1").read_text().splitlines()
    assert shown == ["0", str(tmp_path / "home")]


def test_numbers_and_spaces_are_compared_loosely() -> None:
    assert loose("first  SUCCEEDED  63/63  $1.20") == loose("first SUCCEEDED 1/2 $0.07")
    assert loose("day-1@d0a0ba7697b8, step 11") == loose("day-2@5c0ff9aa3c1e, step 2")
    assert loose("version 1, step 2.") == "version 0, step 0."
    assert loose("first SUCCEEDED") != loose("first FAILED")
