"""Each exit code of the contract is defined in one file only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cloudrec_contract import exit_codes
from cloudrec_contract.end_event import EndEvent, kind_of

ROOT = Path(__file__).parents[2]
CODES = {
    value
    for name, value in vars(exit_codes).items()
    if name.isupper() and isinstance(value, int) and value > 1
}
ENDS = re.compile(r"exit|leave|return|code")


def _ending_literals(source: str) -> list[int]:
    """Return the codes of the contract that a module returns, exits with or compares a code with."""
    found = []
    for node in ast.walk(ast.parse(source)):
        values: list[ast.expr | None] = []
        if isinstance(node, ast.Return):
            values = [node.value]
        elif isinstance(node, ast.Call) and ENDS.search(ast.unparse(node.func)):
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.Compare) and "code" in ast.unparse(node):
            values = [node.left, *node.comparators]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and "code" in ast.unparse(node).lower():
            values = [node.value]
        for value in values:
            parts = value.elts if isinstance(value, ast.Tuple | ast.Set | ast.List) else [value]
            parts = [*parts, *value.keys] if isinstance(value, ast.Dict) else parts
            if isinstance(value, ast.IfExp):
                parts = [value.body, value.orelse]
            found += [part.value for part in parts if isinstance(part, ast.Constant) and part.value in CODES]
    return [code for code in found if type(code) is int]


@pytest.mark.parametrize("source", ["return 75", "sys.exit(64)", "x = code == 76", "code = 65 if a else 0"])
def test_a_literal_exit_code_is_detected(source: str) -> None:
    assert _ending_literals(f"def f():\n    {source}\n")


def test_no_module_but_the_contract_has_an_exit_code_as_a_number() -> None:
    modules = [path for top in ("cloudrec", "trainer") for path in (ROOT / top).rglob("*.py")]
    found = {path: codes for path in modules if (codes := _ending_literals(path.read_text()))}
    assert found == {}


def test_the_batch_script_gets_its_codes_from_the_contract() -> None:
    lines = (ROOT / "templates" / "slurm" / "job.sh.j2").read_text().splitlines()
    words = re.compile(r"(?:leave|ended_with|exit|in) \D*\b(\d+)\b")
    found = [match[1] for line in lines if (match := words.search(line)) and int(match[1]) in CODES]
    assert found == []


@pytest.mark.parametrize("code", sorted({0, 1, *CODES}))
def test_an_event_round_trips_through_its_file(tmp_path: Path, code: int) -> None:
    event = EndEvent(exit_code=code, kind=kind_of(code), cause="why", step=3, machine_leaves=True)
    event.write(tmp_path / "end.json")
    assert EndEvent.read(tmp_path / "end.json") == event


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"exit_code": "1", "kind": "failed"}', '{"exit_code": 1, "kind": 2}', "[" * 100_000],
)
def test_a_damaged_event_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "end.json").write_text(text)
    assert EndEvent.read(tmp_path / "end.json") is None
