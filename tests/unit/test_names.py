"""One name has one meaning: no two classes of the product are called alike."""

import ast
from collections import defaultdict
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("cloudrec", "cloudrec_contract", "cloudrec_server", "trainer")


def _classes(root: Path) -> dict[str, list[str]]:
    found = defaultdict(list)
    for package in _PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_bytes())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(f"{file.relative_to(root)}:{node.lineno}")
    return found


def test_no_two_classes_share_a_name() -> None:
    assert {name: files for name, files in _classes(_ROOT).items() if len(files) > 1} == {}


def test_two_classes_of_one_name_are_found(tmp_path: Path) -> None:
    for package in ("cloudrec", "trainer"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "module.py").write_text("class Twice:\n    pass\n")
    assert _classes(tmp_path)["Twice"] == ["cloudrec/module.py:1", "trainer/module.py:1"]
