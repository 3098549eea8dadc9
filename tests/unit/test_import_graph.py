"""Claims about imports: contracts refuse what they forbid, folders stay small, there are no cycles."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from cloudrec import app

ROOT = Path(__file__).parents[2]
PACKAGES = ("cloudrec", "cloudrec_contract", "cloudrec_sandbox", "cloudrec_server", "trainer")
MOST_FILES = 15
# Each: a module to add, what it imports, and a part of the name of the contract that refuses it.
FORBIDDEN = {
    "provider imports provider": (
        "cloudrec.providers.aws.added",
        "cloudrec.providers.gcp",
        "Providers share",
    ),
    "product imports stand-in": ("cloudrec.app.added", "cloudrec_sandbox.core", "neither the trainer nor"),
    "product imports trainer": ("cloudrec.observe.added", "trainer.base", "neither the trainer nor"),
    "engine imports provider": ("cloudrec.engine.added", "cloudrec.providers.local", "downwards only, and"),
    "launcher imports provider": (
        "cloudrec.launchers.local.added",
        "cloudrec.providers.aws",
        "Launchers know",
    ),
    "transport imports SDK": ("cloudrec.transport.added", "boto3", "use no SDK"),
    "spec imports SDK": ("cloudrec.spec.added", "kubernetes", "use no SDK"),
    "trainer imports product": ("trainer.loop.added", "cloudrec.errors", "nothing of cloudrec"),
    "trainer imports upwards": ("trainer.base.added", "trainer.loop", "trainer's packages"),
    "contract imports product": ("cloudrec_contract.added", "cloudrec.errors", "neither side"),
}
# Cycles that are still to be broken. Remove an entry with its cycle: an entry without a cycle fails too.
FOLDER_CYCLES: set[frozenset[str]] = set()
MODULE_CYCLES: set[frozenset[str]] = set()

Graph = Mapping[str, Collection[str]]


def modules(package: str) -> dict[str, Path]:
    """Find the modules of a package by dotted name."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name != "cloudrec_sandbox.setup":  # builds the distribution
            found[name] = path
    return found


def imports(path: Path, known: Collection[str]) -> Iterator[str]:
    """List the known modules that a file imports, on any line: type checking and functions included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                whole = f"{node.module}.{each.name}"
                yield from (name for name in (whole if whole in known else node.module,) if name in known)


def module_graph(package: str) -> dict[str, set[str]]:
    found = modules(package)
    return {name: set(imports(path, found)) - {name} for name, path in found.items()}


def folder_graph(package: str) -> dict[str, set[str]]:
    """Join the modules of a folder into one node, unless the folder has subfolders."""
    found = modules(package)
    packages = {name for name, path in found.items() if path.name == "__init__.py"}
    with_subfolders = {name.rpartition(".")[0] for name in packages}

    def node(module: str) -> str:
        folder = module if module in packages else module.rpartition(".")[0]
        return module if folder in with_subfolders else folder

    graph: dict[str, set[str]] = defaultdict(set)
    for name, targets in module_graph(package).items():
        graph[node(name)] |= {node(target) for target in targets} - {node(name)}
    return graph


def cycles(graph: Graph) -> set[frozenset[str]]:
    """Find the sets of nodes that reach one another."""
    reached = {name: _reached(graph, name) for name in graph}
    return {
        frozenset(other for other in reached[name] if name in reached.get(other, ()))
        for name in graph
        if name in reached[name]
    }


def _reached(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    left = list(graph[start])
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += graph.get(name, ())
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_import_without_cycles(package: str) -> None:
    known = {each for each in FOLDER_CYCLES if min(each).startswith(f"{package}.")}
    assert cycles(folder_graph(package)) == known


@pytest.mark.parametrize("package", ["cloudrec", "cloudrec_contract", "trainer"])
def test_modules_import_without_cycles(package: str) -> None:
    known = {each for each in MODULE_CYCLES if min(each).startswith(f"{package}.")}
    assert cycles(module_graph(package)) == known


def test_a_folder_has_few_files() -> None:
    counts: dict[str, int] = defaultdict(int)
    for package in PACKAGES:
        for path in modules(package).values():
            counts[path.parent.relative_to(ROOT).as_posix()] += 1
    assert not {folder: count for folder, count in counts.items() if count > MOST_FILES}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the packages' Python files and the contracts."""
    folder = tmp_path_factory.mktemp("tree")
    for package in PACKAGES:
        for path in modules(package).values():
            copy = folder / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    shutil.copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")
    return folder


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def test_import_linter_refuses_each_forbidden_import(tree: Path) -> None:
    """All at once, since each run reads every module; the report has a part for each contract."""
    assert lint(tree).returncode == 0
    for module, target, _ in FORBIDDEN.values():
        path = tree.joinpath(*module.split(".")).with_suffix(".py")
        path.write_text(f'"""A module that breaks a contract."""\n\nimport {target}\n', encoding="utf-8")
    done = lint(tree)
    assert done.returncode == 1
    broken = re.split(r"\n(.+)\n-+\n", done.stdout.partition("Broken contracts")[2])
    reports = dict(zip(broken[1::2], broken[2::2], strict=True))  # by the contract's name
    for name, (module, target, part) in FORBIDDEN.items():
        (contract,) = (each for each in reports if part in each)
        assert f"{module} -> {target} (l.3)" in reports[contract], name


def test_every_use_case_is_in_the_module_that_the_table_names() -> None:
    # The table is text, so no type checker sees a module that has moved.
    for name in app.__all__:
        assert getattr(app, name) is not None
