"""Every block of README.md and docs/ is run, parsed or marked with the reason why it cannot run here.

The skipped tests of this file are the list of the blocks that are not run: page, lines, reason.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Iterator

import click
import pytest
import yaml

from cloudrec.cli.main import root
from cloudrec.spec.models import Spec
from tests.docs.support_blocks import KINDS, LANGUAGES, ROOT, Block, names, page

PAGES = {name: page(name) for name in names()}
BLOCKS = [block for each in PAGES.values() for block in each.blocks]
_README_LINES = 150
_SCHEMA_KEYS = {"label", "labels", "dense", "sparse", "item", "split", "weight"}


def _id(block: Block) -> str:
    return f"{block.page}:{block.line}"


def test_the_readme_is_short_and_has_the_first_hour_first() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= _README_LINES
    assert "make demo" in "\n".join(lines[:8])
    assert sum("![" in line for line in lines) == 1


@pytest.mark.parametrize("name", PAGES)
def test_code_is_fenced(name: str) -> None:
    """An indented block has no language, so nothing could run it."""
    without = re.sub(r"^```.*?^```$", "", PAGES[name].text, flags=re.DOTALL | re.MULTILINE)
    paragraphs = re.sub(r"^ *[-*] (?:.*\n)(?: +.*\n)*", "", without, flags=re.MULTILINE)
    assert re.findall(r"(?:\A|\n\n) {4}.*", paragraphs) == []


@pytest.mark.parametrize("block", BLOCKS, ids=_id)
def test_a_block_is_run_or_parsed_or_marked(block: Block) -> None:
    assert block.language in LANGUAGES, "name the language of the block"
    if block.mark:
        _check_mark(block)
    if block.language == "text":
        assert block.mark or PAGES[block.page].name == "docs/reference/commands.md", (
            "mark it as output or text"
        )
    if block.language == "diff":
        assert PAGES[block.page].run_by
    if block.language == "sh" and PAGES[block.page].run_by:
        assert block.mark, f"{PAGES[block.page].run_by} runs no block of sh: mark it, or write console"
    if block.language == "json":
        json.loads(block.text)
    if block.language == "yaml":
        _check_yaml(block)


def test_every_page_with_commands_is_run_by_one_of_the_runners() -> None:
    runners = {"tutorials": "test_tutorials", "sandbox": "test_sandbox_pages", "here": "test_pages"}
    for part, test in runners.items():
        assert f'part == "{part}"' in (ROOT / "tests" / "docs" / f"{test}.py").read_text(encoding="utf-8")
    for each in PAGES.values():
        commands = [block for block in each.blocks if block.is_run_here]
        assert (each.part in runners) == bool(commands and each.run_by is None)


def _check_mark(block: Block) -> None:
    known = block.not_run or block.run_by or block.mark in {"<!-- output -->", "<!-- text -->"}
    assert known or block.mark.startswith("<!-- blocks run by "), f"unknown mark {block.mark}"
    if block.not_run:
        assert block.not_run[0] in KINDS
        assert block.language in {"sh", "console", "python"}
    if block.run_by:
        _check_test(block.run_by, block.page)


def _check_test(test: str, name: str) -> None:
    """The test that is named must exist, and name the page."""
    text = (ROOT / test).read_text(encoding="utf-8")
    assert name.rpartition("/")[2] in text, f"{test} does not name {name}"


@pytest.mark.parametrize("name", [name for name, each in PAGES.items() if each.run_by])
def test_the_test_that_runs_a_page_names_it(name: str) -> None:
    _check_test(PAGES[name].run_by or "", name)


def _check_yaml(block: Block) -> None:
    content = yaml.safe_load(block.text)
    keys = set(content)
    if keys <= set(Spec.model_fields):
        Spec.model_validate(content)
    elif keys <= _SCHEMA_KEYS:
        given: dict[str, object] = {} if keys & {"label", "labels"} else {"label": "label"}
        given |= {} if "sparse" in keys else {"sparse": ["any"]}
        Spec.model_validate({"features": {**given, **content}})
    elif block.file:
        assert PAGES[block.page].run_by or PAGES[block.page].part != "none"
    else:
        assert {"apiVersion", "kind"} <= keys, "neither a spec nor a feature schema nor a manifest"


def _not_run() -> Iterator[tuple[str, list[Block]]]:
    grouped = defaultdict(list)
    for block in BLOCKS:
        if block.not_run:
            grouped[block.page, *block.not_run].append(block)
    for (name, kind, why), blocks in grouped.items():
        lines = ", ".join(str(each.line) for each in blocks)
        yield f"{name}:{lines}: {kind}: {why}", blocks


@pytest.mark.parametrize(("listed", "blocks"), [pytest.param(*each, id=each[0]) for each in _not_run()])
def test_the_commands_of_a_block_that_is_not_run_are_parsed(listed: str, blocks: list[Block]) -> None:
    for block in blocks:
        subprocess.run(["bash", "-n"], input="\n".join(block.commands), text=True, check=True)
        for words in _calls(block):
            _parse(words)
    pytest.skip(listed)


def _calls(block: Block) -> Iterator[list[str]]:
    """Yield the calls of cloudrec in a block."""
    for line in block.commands:
        for part in re.split(r"&&|;|\|(?!\|)", line):
            words = shlex.split(part, comments=True)
            if words[:1] == ["cloudrec"]:
                yield words[1:]


def _parse(words: list[str]) -> None:
    """Parse a call as the command line does, without running it; click's error fails the test."""
    command: click.Command = root
    context = click.Context(root, info_name="cloudrec")
    rest = [word for word in words if word != "--sandbox"]
    while isinstance(command, click.Group):
        found = command.get_command(context, rest[0])
        assert found is not None, f"there is no command {rest[0]}"
        command, rest = found, rest[1:]
        context = click.Context(command, parent=context)
    command.parse_args(click.Context(command, info_name=words[0]), rest)
