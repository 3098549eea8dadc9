"""Write cloudrec/image/files/lock.json: every package of a pod without an image, with its version and hashes.

`python -m scripts.lock` asks the package index, once for each version of Python that a base image may have.
Run it after a change of constraints.txt or of the extras, with a pip without configuration
(PIP_CONFIG_FILE=/dev/null). It changes nothing in this environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "cloudrec" / "image" / "files" / "lock.json"
PYTHONS = ("3.11", "3.12", "3.13")  # of base images
TORCH, FBGEMM, TORCHREC = "2.13.0", "1.8.0", "1.8.0"
# The extras that pods install; "" is the base install.
EXTRAS = ("", "kubernetes", "aws", "azure", "gcp", "parquet", "ray", "trainer-cpu")
# What torchrec's metadata leads to is named here instead: it asks for the CUDA build on every device.
DEVICES = {"cuda": f"fbgemm-gpu=={FBGEMM}", "cpu": f"fbgemm-gpu-cpu=={FBGEMM}"}
LONE = f"torchrec=={TORCHREC}"
_GLIBC = [f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)]
_PLATFORMS = (*_GLIBC, "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64")
# A project without a wheel: pods build it, with the setuptools that is locked, too.
SOURCE, BUILD = "iopath==0.1.10", "setuptools==84.2.1"


def main() -> int:
    """Ask the index and write the lock."""
    wanted = {extra: list(_requirements(extra)) for extra in EXTRAS}
    found: dict[str, dict[str, Any]] = {}
    for python in PYTHONS:
        print(f"asking the index for Python {python}", flush=True)
        for name, package in _resolved(python, [each for needs in wanted.values() for each in needs]).items():
            known = found.setdefault(name, package)
            if known["version"] != package["version"]:
                print(
                    f"error: {name} has two versions: {known['version']}, {package['version']}",
                    file=sys.stderr,
                )
                return 1
            known["sha256"] = sorted({*known["sha256"], *package["sha256"]})
    for extra, needs in wanted.items():
        _mark(found, extra.removesuffix("-cpu") or "base", [Requirement(each) for each in needs])
    for device, need in DEVICES.items():
        _mark(found, device, [Requirement(need)])
    _mark(found, "trainer", [Requirement(each) for each in (LONE, BUILD)], deep=False)
    _mark(found, "trainer", [Requirement(SOURCE)])
    packages = [
        {
            "name": name,
            "version": package["version"],
            "extras": sorted(package["in"]),
            **({"is_source": True} if name == Requirement(SOURCE).name else {}),
            "sha256": package["sha256"],
        }
        for name, package in sorted(found.items())
        if package["in"]
    ]
    lines = ",\n".join(json.dumps(each) for each in packages)
    LOCK.write_text(f'{{"schema_version": 1, "packages": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{LOCK.relative_to(ROOT)}: {len(packages)} packages")
    return 0


def _requirements(extra: str) -> Iterable[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = project["optional-dependencies"][extra] if extra else project["dependencies"]
    for need in needs:
        if need.startswith("cloudrec["):
            yield from _requirements(need.removeprefix("cloudrec[").removesuffix("]"))
        elif canonicalize_name(Requirement(need).name) not in ("fbgemm-gpu-cpu", "iopath"):
            yield need


def _resolved(python: str, needs: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the packages that pip would install, by name."""
    exact = [f"torch=={TORCH}", BUILD, "portalocker"]  # the last for SOURCE, whose needs are not asked for
    first = _report(python, [*needs, *exact], constraints=ROOT / "constraints.txt")
    lone = _report(python, [*DEVICES.values(), LONE, SOURCE], deep=False)
    return {**first, **lone}


def _report(
    python: str, needs: Iterable[str], *, constraints: Path | None = None, deep: bool = True
) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-P", "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"]
        command += ["--report", str(report), "--target", str(Path(folder) / "none")]
        command += ["--python-version", python, "--implementation", "cp"]
        for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
            command += ["--abi", abi]
        for platform in _PLATFORMS:
            command += ["--platform", platform]
        command += ["--constraint", str(constraints)] if constraints else []
        command += ["--only-binary", ":all:"] if deep else ["--no-deps"]
        subprocess.run([*command, *needs], check=True)
        items = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {canonicalize_name(item["metadata"]["name"]): _package(item) for item in items}


def _package(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "version": item["metadata"]["version"],
        "sha256": [item["download_info"]["archive_info"]["hashes"]["sha256"]],
        "needs": item["metadata"].get("requires_dist") or [],
        "in": set(),
    }


def _mark(
    found: Mapping[str, dict[str, Any]], extra: str, needs: list[Requirement], *, deep: bool = True
) -> None:
    """Note that an extra needs these packages, and what they need."""
    of_base = {"python_version": "3.12", "python_full_version": "3.12.0"}
    environment = {**{name: str(value) for name, value in default_environment().items()}, **of_base}
    waiting = list(needs)
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        need = waiting.pop()
        name, extras = canonicalize_name(need.name), frozenset(need.extras)
        if (name, extras) in seen or name not in found:
            continue
        seen.add((name, extras))
        found[name]["in"].add(extra)
        for text in found[name]["needs"] if deep else ():
            inner = Requirement(text)
            contexts = [{**environment, "extra": each} for each in (*extras, "")]
            if inner.marker is None or any(inner.marker.evaluate(each) for each in contexts):
                waiting.append(inner)


if __name__ == "__main__":
    sys.exit(main())
