"""Claims about the wheel: what users install is what was tested."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # built from a copy: setuptools leaves a build folder in its source
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(source)], check=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_packages_and_what_they_read(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        "cloudrec/cli/main.py",
        "cloudrec/image/files/Dockerfile",
        "cloudrec/image/files/constraints.txt",
        "cloudrec/py.typed",
        "cloudrec/providers/local/__init__.py",
        "trainer/__main__.py",
        "trainer/py.typed",
        "templates/report.html.j2",
        "templates/specs/cloudrec.yaml",
    }
    assert wanted <= names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "scripts/"))]


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


def test_an_installed_cloudrec_is_packed_into_a_wheel_again(wheel: Path, tmp_path: Path) -> None:
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
