"""The extras: they list the packages that their commands import, in tested and compatible versions."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cloudrec import providers

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: Mapping[str, Sequence[str]] = PROJECT["optional-dependencies"]
SANDBOX: Sequence[str] = tomllib.loads(
    (ROOT / "cloudrec_sandbox/pyproject.toml").read_text(encoding="utf-8")
)["project"]["dependencies"]
CLOUDS = ("aws", "azure", "gcp")
# The code that needs each extra; a folder includes its files.
SERVED = {
    "aws": ("cloudrec/providers/aws", "cloudrec_contract/objectstore/s3"),
    "azure": (
        "cloudrec/providers/azure",
        "cloudrec_contract/objectstore/azure",
    ),
    "gcp": ("cloudrec/providers/gcp", "cloudrec_contract/objectstore/gcs"),
    "kubernetes": (
        "cloudrec/kubernetes/client",
        "cloudrec/providers/kubernetes",
    ),
    "data": (
        "cloudrec/data/*.py",
        "cloudrec/data/format",
        "cloudrec/data/prepare/*.py",
        "cloudrec/data/synth",
    ),
    "data,ray": ("cloudrec/data/prepare/many",),
    "ray": ("cloudrec/launchers/ray", "cloudrec/agent/engines/ray.py"),
    "sandbox,aws": ("cloudrec_sandbox/aws",),
    "sandbox,azure": ("cloudrec_sandbox/azure",),
    "sandbox,gcp": ("cloudrec_sandbox/gcp",),
    "serve,trainer-cpu,faiss": ("cloudrec_server",),
    "ui": ("cloudrec/app/live",),
    "sandbox": ("cloudrec_sandbox/kubernetes", "cloudrec_sandbox/core", "cloudrec_sandbox/[!s]*.py"),
}


def requirements(extra: str) -> Iterator[Requirement]:
    """The requirements of one or more extras, separated by commas, and of the base installation."""
    for text in PROJECT["dependencies"]:
        yield Requirement(text)
    for name in extra.split(","):
        for text in EXTRAS[name]:
            requirement = Requirement(text)
            if requirement.name == "cloudrec":
                yield from requirements(",".join(requirement.extras))
            elif requirement.name == "cloudrec-sandbox":
                yield from (each for each in map(Requirement, SANDBOX) if each.name != "cloudrec")
            else:
                yield requirement


@cache
def known_versions() -> Mapping[str, str]:
    """The versions in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line)
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_tested_versions_are_within_the_bounds(extra: str) -> None:
    for requirement in requirements(extra):
        version = known_versions().get(canonicalize_name(requirement.name))
        assert version is None or version in requirement.specifier, (requirement, version)


@pytest.mark.parametrize("extra", [*CLOUDS, "kubernetes"])
def test_lower_bounds_of_cloud_packages_are_near_the_tested_versions(extra: str) -> None:
    for requirement in requirements(extra):
        if requirement.name in {Requirement(text).name for text in PROJECT["dependencies"]}:
            continue
        version = known_versions()[canonicalize_name(requirement.name)]
        lowest = next(each.version for each in requirement.specifier if each.operator == ">=")
        assert lowest.split(".")[0] == version.split(".")[0], (requirement, version)


def test_the_packages_that_pin_botocore_have_ranges_with_a_common_version() -> None:
    """pip backtracks through all versions of an unpinned one."""
    found = {each.name: each for each in requirements("aws")}
    for name in ("aiobotocore", "boto3", "botocore"):
        assert {each.operator for each in found[name].specifier} == {">=", "<"}, found[name]
    pinned = [
        Requirement(text)
        for name in ("aiobotocore", "boto3")
        for text in metadata.requires(name) or ()
        if Requirement(text).name == "botocore" and "extra" not in text
    ]
    for each in (*pinned, found["botocore"]):
        assert metadata.version("botocore") in each.specifier, each


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_extra_of_a_cloud_has_all_packages_of_its_runs(cloud: str) -> None:
    names = {each.name for each in requirements(cloud)}
    assert {"kubernetes", "fsspec"} <= names


@pytest.mark.parametrize("extra", SERVED)
def test_an_extra_names_every_package_that_its_commands_import(extra: str) -> None:
    files = {file for each in requirements(extra) for file in files_of(each)}
    unnamed = {
        f"{module} in {source.relative_to(ROOT)}"
        for source in sources(SERVED[extra])
        for module in imported(source)
        if origin_of(module) not in files
    }
    assert not unnamed, "\n".join(sorted(unnamed))


@pytest.mark.parametrize("name", providers.names())
def test_the_declared_packages_of_a_provider_match_its_extra(name: str) -> None:
    needs = providers.needs(name)
    files = {file for each in requirements(needs.extra) for file in files_of(each)}
    assert needs.extra in EXTRAS
    for module in needs.modules:
        assert origin_of(module) in files, module


@pytest.mark.parametrize("name", CLOUDS)
def test_a_provider_declares_every_package_that_it_imports(name: str) -> None:
    needs = providers.needs(name)
    declared = {distribution_of(module, needs.extra) for module in needs.modules}
    wanted = {
        distribution_of(module, needs.extra)
        for source in sources(SERVED[name])
        for module in imported(source)
    }
    base = {Requirement(text).name for text in PROJECT["dependencies"]}
    assert wanted - base <= declared


def distribution_of(module: str, extra: str) -> str:
    """The name of the package that contains a module."""
    origin = origin_of(module)
    return next((each.name for each in requirements(extra) if origin in files_of(each)), module)


@cache
def files_of(requirement: Requirement) -> frozenset[Path]:
    """The Python files of an installed package; none if it is not installed, as Ray may be."""
    try:
        found = metadata.files(requirement.name) or ()
    except metadata.PackageNotFoundError:
        return frozenset()
    return frozenset(Path(str(file.locate())).resolve() for file in found if file.suffix in {".py", ".so"})


def origin_of(module: str) -> Path:
    """The file of a module, or of the nearest parent package with a file."""
    spec = find_spec(module)
    while spec is None or spec.origin is None:
        module = module.rpartition(".")[0]
        assert module, "it is not installed"
        spec = find_spec(module)
    return Path(spec.origin).resolve()


def sources(places: Sequence[str]) -> Iterator[Path]:
    for place in places:
        yield from (ROOT / place).rglob("*.py") if (ROOT / place).is_dir() else sorted(ROOT.glob(place))


STUBS = ("types_boto3", "botocore_stubs")  # types alone: only mypy imports them


def imported(source: Path) -> Iterator[str]:
    """The modules of other packages that a file imports, or names to import: "google.cloud.lustre_v1"."""
    ours = {"cloudrec", "cloudrec_contract", "cloudrec_sandbox", "cloudrec_server"}
    ours |= {"templates", "trainer", "__future__"}
    ours |= sys.stdlib_module_names
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [_deepest(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"(azure|google)(\.\w+)+", str(node.value)):
            names = [str(node.value)]
        names = [name for name in names if not name.startswith(STUBS)]
        yield from (name for name in names if name.partition(".")[0] not in ours and _has_file(name))


def _deepest(package: str, name: str) -> str:
    """The module that `from package import name` imports: a submodule, or the package."""
    return f"{package}.{name}" if _is_module(f"{package}.{name}") else package


def _has_file(name: str) -> bool:
    """Whether the module has a file; a namespace such as google.cloud belongs to no package."""
    return _is_module(name) and getattr(find_spec(name), "origin", None) is not None


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # ValueError: it replaces itself when it is imported
        return False
