"""The program that prepares a pod in an image with Python alone, run with a real pip and an index on disk."""

from __future__ import annotations

import base64
import bz2
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cloudrec.image import bootstrap
from cloudrec.image.bootstrap import CODE, FILES, LOCK, SCRIPT, digest_of, packages_of
from cloudrec.image.code import current, packed

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "cloudrec" / "image" / "files" / LOCK


@dataclass
class Place:
    """A pod's folders: the mounted ConfigMap, an index, the work volume."""

    code: Path
    index: Path
    target: Path

    def lock(self, *packages: dict[str, Any]) -> None:
        (self.code / LOCK).write_text(json.dumps({"schema_version": 1, "packages": packages}))

    def digest(self) -> str:
        return digest_of((name, (self.code / name).read_bytes()) for name in FILES)

    def start(self, *extras: str, digest: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the program as the pod does; pip reads no settings of this machine."""
        words = [sys.executable, "-I", str(self.code / SCRIPT), "--code", str(self.code), "--tries", "2"]
        words += ["--wait", "0.01", "--digest", digest or self.digest(), "--target", str(self.target)]
        words += [word for extra in extras for word in ("--extra", extra)]
        mine = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index)}
        return subprocess.run(
            words,
            env={**mine, **pip, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def python(self, program: str) -> str:
        """Run a program with the environment that was made."""
        found = subprocess.run(
            [str(self.target / "bin" / "python"), "-I", "-c", program],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return found.stdout.strip()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(code=tmp_path / "code", index=tmp_path / "index", target=tmp_path / "work" / "python")
    for folder in (made.code, made.index, made.target.parent):
        folder.mkdir()
    source = tmp_path / "source"
    for name in ("cloudrec", "cloudrec_contract", "templates", "trainer"):
        (source / name).mkdir(parents=True)
        (source / name / "__init__.py").write_text(f"NAME = {name!r}\n")
    (made.code / CODE).write_bytes(packed(source))
    (made.code / SCRIPT).write_bytes(Path(bootstrap.__file__).read_bytes())
    made.lock(entry("tiny", wheel(made.index, "tiny", "1.0"), extras=["base"]))
    return made


def wheel(index: Path, name: str, version: str, *, text: str = "", needs: Sequence[str] = ()) -> str:
    """Write a wheel with one module; return its SHA-256."""
    path = index / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n{text}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {need}\n" for need in needs),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    with zipfile.ZipFile(path, "w") as target:
        for file, content in files.items():
            target.writestr(file, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{file},sha256={digest},{len(content)}")
        target.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,", ""]))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def entry(name: str, digest: str, *, version: str = "1.0", extras: Sequence[str]) -> dict[str, Any]:
    return {"name": name, "version": version, "extras": list(extras), "sha256": [digest]}


def test_a_pod_gets_the_packages_of_its_extras_and_the_code(place: Place) -> None:
    # torchrec's metadata asks for packages that are not in the lock: they must not be looked for.
    tiny = wheel(place.index, "tiny", "1.0", needs=["absent>=3"])
    other = wheel(place.index, "other", "1.0")
    place.lock(entry("tiny", tiny, extras=["base", "aws"]), entry("other", other, extras=["ray"]))
    done = place.start("base")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 packages are installed; cloudrec " in done.stdout
    found = (
        "import tiny, trainer, importlib.util as u; print(tiny.VERSION, trainer.NAME, u.find_spec('other'))"
    )
    assert place.python(found) == "1.0 trainer None"


def test_a_second_start_uses_what_is_there_unless_the_first_was_killed_half_way(place: Place) -> None:
    assert place.start("base").returncode == 0
    file = place.index / "tiny-1.0-py3-none-any.whl"
    hidden = file.rename(place.index / "hidden")  # no index could serve it again
    again = place.start("base")
    assert (again.returncode, "the environment is there" in again.stdout) == (0, True)
    hidden.rename(file)
    (place.target / ".cloudrec-done").unlink()
    (place.target / "half").touch()
    assert place.start("base").returncode == 0
    assert not (place.target / "half").exists()


def test_a_file_with_another_hash_is_refused_at_once(place: Place) -> None:
    place.lock(entry("tiny", "0" * 64, extras=["base"]))
    done = place.start("base")
    assert done.returncode == 69
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith(
        "error: the packages cannot be installed: the package index served a file that is not"
    )
    assert "tiny==1.0" in last
    assert "try 1 of" not in done.stdout
    assert not (place.target / ".cloudrec-done").exists()


def test_an_index_without_the_package_is_asked_again_and_then_named(place: Place) -> None:
    place.lock(entry("missing", "0" * 64, extras=["base"]))
    done = place.start("base")
    assert done.returncode == 69
    assert "try 1 of 2 failed" in done.stdout
    assert "No matching distribution found for missing==1.0" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("name", FILES)
def test_code_that_was_changed_or_cut_short_is_refused(place: Place, name: str) -> None:
    digest = place.digest()
    file = place.code / name
    file.write_bytes(file.read_bytes()[:-1] + (b"" if name == CODE else b" \n"))
    done = place.start("base", digest=digest)
    assert done.returncode == 69
    assert "it was changed, or cut short" in done.stdout
    assert not place.target.exists()


def test_an_image_with_packages_installs_none_and_names_those_that_differ(place: Place) -> None:
    place.lock(
        entry("pip", "0" * 64, version="0.1", extras=["base"]),
        entry("absent", "0" * 64, extras=["base"]),
        entry("pytest", "0" * 64, version=pytest.__version__, extras=["base"]),
    )
    done = place.start("base", CLOUDREC_IMAGE_PACKAGES="own")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 packages are the image's own; 2 are of another version or missing: pip, absent" in done.stdout
    assert place.python("import pytest, trainer; print(trainer.NAME)") == "trainer"


def test_the_shipped_lock_has_the_tested_versions_and_a_hash_for_each_package() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    tested = dict(line.lower().replace("_", "-").split("==") for line in lines if "==" in line)
    packages = json.loads(SHIPPED.read_text())["packages"]
    assert {each["name"]: each["version"] for each in packages if each["name"] in tested} == {
        each["name"]: tested[each["name"]] for each in packages if each["name"] in tested
    }
    assert [each["name"] for each in packages if not each["sha256"]] == []
    trio = {each["name"]: each["version"] for each in packages}
    assert (trio["torch"], trio["torchrec"], trio["fbgemm-gpu"]) == ("2.13.0", "1.8.0", "1.8.0")
    assert trio["fbgemm-gpu"] == trio["fbgemm-gpu-cpu"]


def test_a_device_has_its_own_build_of_fbgemm() -> None:
    lock = SHIPPED.read_text()
    cuda, cpu = ({each.name for each in packages_of(lock, ("trainer", device))} for device in ("cuda", "cpu"))
    assert cuda - cpu == {"fbgemm-gpu"}
    assert cpu - cuda == {"fbgemm-gpu-cpu"}
    assert {"torch", "torchrec", "nvidia-nccl-cu13", "iopath"} <= cuda & cpu


def test_the_code_has_what_runs_in_pods_and_not_the_commands(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(bz2.decompress(current().files[CODE]))) as archive:
        archive.extractall(tmp_path)  # noqa: S202 - cloudrec has just packed it
    assert not (tmp_path / "cloudrec" / "cli").exists()
    programs = "cloudrec.agent.__main__", "cloudrec.keeper.guard", "cloudrec.launchers.base.script.run"
    code = f"import cloudrec, {', '.join(programs)}; print(cloudrec.__file__)"
    paths = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=paths, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "cloudrec" / "__init__.py")


def test_the_code_depends_on_its_content_only_and_fits_in_a_config_map(tmp_path: Path) -> None:
    code = current()
    assert sum(map(len, code.files.values())) < 900_000  # of 1,048,576: it must not reach the limit unnoticed
    for name in ("cloudrec", "cloudrec_contract", "templates", "trainer"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text("1\n")
    before = packed(tmp_path)
    os.utime(tmp_path / "trainer" / "a.py", (1, 1))
    (tmp_path / "trainer" / "__pycache__").mkdir()
    (tmp_path / "trainer" / "__pycache__" / "a.cpython-312.pyc").write_text("compiled")
    assert packed(tmp_path) == before
    (tmp_path / "trainer" / "a.py").write_text("2\n")
    assert packed(tmp_path) != before
