"""The wheel: its content, its metadata and its installation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections import defaultdict
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
_LARGE = ("trainer", "trainer-cpu")  # torch alone is gigabytes: these are resolved, not installed
# The commands of an extra, as far as they run without an account, a cluster or data.
STORAGE = "cluster.settings.storage=s3://bucket/folder"
SERVED = {
    "aws": (("up", "aws", "--dry-run", "--region", "us-east-1"), ("doctor", "aws"), ("catalog", "aws")),
    "azure": (("up", "azure", "--dry-run", "--region", "eastus"), ("doctor", "azure"), ("catalog", "azure")),
    "gcp": (("up", "gcp", "--dry-run", "--region", "us-central1"), ("doctor", "gcp"), ("catalog", "gcp")),
    "kubernetes": (
        ("up", "kubernetes", "--dry-run", "--set", STORAGE),
        ("doctor", "kubernetes", "--set", STORAGE),
    ),
    "data": (("data", "synth", "raw", "--rows", "200"), ("data", "prepare", "raw", "prepared")),
    "aws,sandbox": (("sandbox", "run", "aws", "--", "cloudrec", "doctor", "aws"),),
    "azure,sandbox": (("sandbox", "run", "azure", "--", "cloudrec", "doctor", "azure"),),
    "gcp,sandbox": (("sandbox", "run", "gcp", "--", "cloudrec", "doctor", "gcp"),),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the project: setuptools leaves a build folder in its source."""
    folder = tmp_path_factory.mktemp("source")
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sandbox_wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source / "cloudrec_sandbox", tmp_path_factory.mktemp("sandbox"))


def built(source: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(source)], check=True, timeout=120)
    (made,) = folder.glob("*.whl")
    return made


def tracked(source: Path) -> set[str]:
    """The files of the copy, without those of the build."""
    files = (path.relative_to(source) for path in source.rglob("*") if path.is_file())
    return {
        path.as_posix() for path in files if "build" not in path.parts and "__pycache__" not in path.parts
    }


def test_the_wheel_contains_the_packages_with_each_of_their_files(source: Path, wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        "cloudrec/cli/main.py",
        "cloudrec/image/files/Dockerfile",
        "cloudrec/image/files/constraints.txt",
        "cloudrec/py.typed",
        "cloudrec/providers/local/__init__.py",
        *(f"cloudrec/providers/{cloud}/machines.csv" for cloud in ("aws", "azure", "gcp")),
        "trainer/__main__.py",
        "trainer/py.typed",
        *(f"templates/page/{name}" for name in ("report.html.j2", "page.css", "page.js", "icon.svg")),
        "templates/specs/cloudrec.yaml",
    }
    assert wanted <= names
    packages = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert {path for path in tracked(source) if path.partition("/")[0] in packages} <= names
    others = ("benchmarks/", "cloudrec_sandbox/", "scripts/", "tests/")
    assert not [name for name in names if name.startswith(others)]


def test_the_sandbox_wheel_contains_every_stand_in_and_nothing_else(sandbox_wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(sandbox_wheel).namelist() if ".dist-info/" not in name}
    tracked = {path.relative_to(ROOT).as_posix() for path in (ROOT / "cloudrec_sandbox").rglob("*.py")}
    assert names == tracked


def test_sandbox_run_works_with_both_wheels_installed(
    wheel: Path, sandbox_wheel: Path, tmp_path: Path
) -> None:
    """Run outside the repository; the command prints the path of the stand-ins."""
    site = tmp_path / "site"
    for each in (wheel, sandbox_wheel):
        with zipfile.ZipFile(each) as content:
            content.extractall(site)
    shown = (
        "import cloudrec, cloudrec_sandbox, os\n"
        "print(cloudrec.__file__, cloudrec_sandbox.__file__, os.environ['AWS_ENDPOINT_URL'])"
    )
    program = "from cloudrec.cli.main import run; import sys; run(sys.argv[1:])"
    words = ["sandbox", "run", "aws", "--", sys.executable, "-P", "-c", shown]
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *words],
        env={**os.environ, "PYTHONPATH": str(site), "CLOUDREC_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    product, stand_ins, endpoint = done.stdout.split()
    assert product == str(site / "cloudrec" / "__init__.py")
    assert stand_ins == str(site / "cloudrec_sandbox" / "__init__.py")
    assert endpoint.startswith("http://127.0.0.1:")


def test_the_installed_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    with zipfile.ZipFile(wheel) as content:
        content.extractall(target)
    environment = {**os.environ, "PYTHONPATH": str(target), "CLOUDREC_HOME": str(tmp_path / "home")}
    program = (
        "import cloudrec; print(cloudrec.__file__)\n"
        "from cloudrec.cli.main import run; run(['init', '--print'])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(target))
    assert "version: 1" in done.stdout


def test_an_installed_cloudrec_can_be_repacked_as_a_wheel(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as content:
        content.extractall(site)
        shipped = set(content.namelist())
    program = (
        "import shutil, sys; from pathlib import Path; from cloudrec.image.context import build_context\n"
        "with build_context() as folder: shutil.copytree(folder, sys.argv[1])"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "context")]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(site)}, cwd=tmp_path, check=True)
    assert {path.name for path in (tmp_path / "context").iterdir()} == {
        "Dockerfile",
        "constraints.txt",
        wheel.name,
    }
    assert (tmp_path / "context" / "Dockerfile").read_bytes() == (ROOT / "Dockerfile").read_bytes()
    with zipfile.ZipFile(tmp_path / "context" / wheel.name) as packed:
        assert set(packed.namelist()) == shipped
        assert packed.testzip() is None


def test_the_wheels_metadata_has_the_extras_of_the_project(wheel: Path) -> None:
    """Self-references too: `cloudrec[aws]` brings what `cloudrec[kubernetes]` does."""
    with zipfile.ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(content.read(name))
    assert set(metadata.get_all("Provides-Extra") or ()) == set(EXTRAS)
    wanted = metadata.get_all("Requires-Dist") or ()
    for cloud in ("aws", "azure", "gcp"):
        assert any(re.match(rf"cloudrec\[kubernetes\].*extra == .{cloud}.", each) for each in wanted)


@pytest.mark.soak
@pytest.mark.parametrize("extra", [*EXTRAS, "aws,sandbox", "azure,sandbox", "gcp,sandbox", "aws,azure,gcp"])
def test_pip_resolves_an_extra_without_backtracking(
    extra: str, wheel: Path, sandbox_wheel: Path, tmp_path: Path
) -> None:
    """In an empty environment without constraints; backtracking shows as several versions of one package."""
    pip = empty_environment(tmp_path) / "pip"
    wanted = f"{wheel}[{extra}]"
    local = ["--find-links", str(wheel.parent), "--find-links", str(sandbox_wheel.parent)]
    options = ["--dry-run", "--ignore-installed", "--no-cache-dir", "--no-color"]
    command = [str(pip), "install", *options, *local, wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    versions: dict[str, set[str]] = defaultdict(set)
    for name, version in re.findall(
        r"^\s+(?:Downloading|Using cached) ([\w.]+?)-(\d[^-\s]*)", done.stdout, re.MULTILINE
    ):
        versions[name.lower()].add(version)
    assert {name: found for name, found in versions.items() if len(found) > 3} == {}


@pytest.mark.soak
@pytest.mark.parametrize(
    "extra", [extra for extra in dict.fromkeys([*EXTRAS, *SERVED]) if extra not in _LARGE]
)
def test_an_extra_installs_every_module_that_its_commands_import(
    extra: str, wheel: Path, sandbox_wheel: Path, tmp_path: Path
) -> None:
    programs = empty_environment(tmp_path)
    local = ["--find-links", str(wheel.parent), "--find-links", str(sandbox_wheel.parent)]
    install = [str(programs / "pip"), "install", "--quiet", "--no-compile", *local]
    subprocess.run([*install, f"{wheel}[{extra}]"], check=True, timeout=600)
    subprocess.run([str(programs / "pip"), "check"], check=True, timeout=60)
    folder = tmp_path / "empty"
    folder.mkdir()
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS", "AZURE", "GOOGLE"))
    }
    environment = {**kept, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder)}
    environment |= {"CLOUDREC_HOME": str(folder / "home"), "AWS_EC2_METADATA_DISABLED": "true"}
    for words in SERVED.get(extra, (("--help",),)):
        done = subprocess.run(
            [str(programs / "cloudrec"), *words],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode in {0, 3}, (words, done.stderr)
        assert "needs the extra" not in done.stderr, (words, done.stderr)


def empty_environment(folder: Path) -> Path:
    """Make a virtual environment with pip alone; the folder of its programs."""
    venv.create(folder / "venv", with_pip=True)
    return folder / "venv" / "bin"
