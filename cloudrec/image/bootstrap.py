"""Prepares a pod whose image has Python alone: packages from the package index, and the code of cloudrec.

This file is the program of an init container, in a ConfigMap beside `lock.json` and `code.tar.bz2`. It uses
the standard library only, and imports nothing of cloudrec. It makes a virtual environment on a volume of the
pod:

    python3 -I bootstrap.py --code FOLDER --digest SHA256 --target FOLDER --extra base --extra trainer

What it installs is fixed: every package by version and hash, and the code by its digest. A second start in
the same pod finds the environment and uses it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import venv
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PARTS = (
    "base",
    "trainer",
    "cuda",
    "cpu",
    "kubernetes",
    "aws",
    "azure",
    "gcp",
    "parquet",
    "ray",
)  # of the lock
SCRIPT, LOCK, CODE = "bootstrap.py", "lock.json", "code.tar.bz2"
FILES = (SCRIPT, LOCK, CODE)
# A base image that has the packages itself sets this variable to `own`: then none is installed.
IMAGE_PACKAGES = "CLOUDREC_IMAGE_PACKAGES"
UNFIT = 69  # cloudrec_contract.exit_codes.UNFIT_NODE
_DONE = ".cloudrec-done"
_WRONG = "DO NOT MATCH THE HASHES"  # pip's words for a file with another hash
_DRIVER = "/proc/driver/nvidia/version"  # the kernel module's own file; it is in every container of the node
_OLDEST = (3, 11)
_SHOWN = 4  # packages that a line names
# pip repeats single requests. These tries are for an index, or a network, that is away for some minutes.
_TRIES, _WAIT_S = 4, 15.0
_OFF = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_CONSTRAINT": "",  # some publishers' images set one, for other packages
}


class SetupError(Exception):
    """The pod cannot be prepared; the message is for the user."""


@dataclass(frozen=True)
class Package:
    """A package of the lock.

    Attributes:
        name: its name.
        version: its version.
        hashes: the SHA-256 of each file that may be installed.
        is_source: whether it is built here, since it has no wheel.
    """

    name: str
    version: str
    hashes: tuple[str, ...]
    is_source: bool = False

    @property
    def requirement(self) -> str:
        """Its line for pip."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{each}" for each in self.hashes)])


def digest_of(files: Iterable[tuple[str, bytes]]) -> str:
    """Return the digest of named files, which depends on nothing else."""
    lines = sorted(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def packages_of(lock: str, extras: Iterable[str]) -> list[Package]:
    """Return the packages of the lock that these extras need."""
    wanted = set(extras)
    found = []
    for each in json.loads(lock)["packages"]:  # noqa: TID251 - runs alone, on the lock that cloudrec ships
        if wanted.intersection(each["extras"]):
            package = Package(
                each["name"], each["version"], tuple(each["sha256"]), bool(each.get("is_source"))
            )
            found.append(package)
    return found


def main(arguments: Sequence[str]) -> int:
    """Prepare the pod; return 0, or 69 with the reason as the last line."""
    options = _options(arguments)
    began = time.monotonic()
    try:
        said = _prepare(options)
    except (OSError, SetupError, tarfile.TarError, ValueError) as error:
        print(f"error: {error}", flush=True)
        return UNFIT
    print(f"{said} ({time.monotonic() - began:.1f} s)", flush=True)
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=SCRIPT, allow_abbrev=False)
    parser.add_argument("--code", required=True, help="the folder with the files")
    parser.add_argument("--digest", required=True, help="their digest")
    parser.add_argument("--target", required=True, help="the folder for the environment")
    parser.add_argument("--extra", action="append", default=[], help="a part of the lock to install")
    parser.add_argument("--tries", type=int, default=_TRIES, help="how often the index is asked")
    parser.add_argument("--wait", type=float, default=_WAIT_S, help="seconds before the second try")
    return parser.parse_args(arguments)


def _prepare(options: argparse.Namespace) -> str:
    if sys.version_info < _OLDEST:
        raise SetupError(f"the image has Python {sys.version.split()[0]}; cloudrec needs 3.11 or newer")
    folder, target = Path(options.code), Path(options.target)
    files = {name: (folder / name).read_bytes() for name in FILES}
    found = digest_of(files.items())
    if found != options.digest:
        raise SetupError(
            f"the code in {folder} has the digest {found[:16]}, not {options.digest[:16]}: it was changed, "
            f"or cut short (delete the ConfigMap cloudrec-code-{options.digest[:16]}, and launch again)"
        )
    device = "cuda" if os.path.exists(_DRIVER) else "cpu"  # noqa: PTH110 - a path, not a file to read
    extras = [*options.extra, *([device] if "trainer" in options.extra else [])]
    done, mark = target / _DONE, f"{found} {' '.join(extras)}\n"
    if done.is_file() and done.read_text(encoding="ascii") == mark:
        return "the environment is there"
    shutil.rmtree(target, ignore_errors=True)  # that of a start that was killed
    packages = packages_of(files[LOCK].decode(), extras)
    venv.create(target, symlinks=True)
    site = next(target.glob("lib/python*/site-packages"))
    if os.environ.get(IMAGE_PACKAGES) == "own":
        said = _use_own(site, packages)
    else:
        said = _install(target, packages, options)
    _unpack(folder / CODE, site)
    done.write_text(mark, encoding="ascii")
    return f"{said}; cloudrec {found[:12]} is unpacked"


def _use_own(site: Path, packages: Sequence[Package]) -> str:
    """Show the image's own packages to the environment; return what differs from the lock."""
    folders = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    lines = [f"import site; site.addsitedir({path!r})" for path in folders]
    (site / "cloudrec-image.pth").write_text("\n".join([*lines, ""]), encoding="utf-8")
    others = [each.name for each in packages if _version(each.name) != each.version]
    shown = ", ".join(others[:_SHOWN]) + (" and more" if len(others) > _SHOWN else "")
    differing = f"; {len(others)} are of another version or missing: {shown}" if others else ""
    return f"{len(packages)} packages are the image's own{differing}"


def _version(name: str) -> str:
    try:
        return metadata.version(name).partition("+")[0]  # 2.13.0+cpu is a build of 2.13.0
    except metadata.PackageNotFoundError:
        return ""


def _install(target: Path, packages: Sequence[Package], options: argparse.Namespace) -> str:
    wheels = [each for each in packages if not each.is_source]
    sources = [each for each in packages if each.is_source]
    # The lock is complete, so pip resolves nothing. torchrec's own metadata would ask for other packages.
    _pip(target, wheels, ("--only-binary", ":all:"), options)
    if sources:  # with the setuptools just installed: a build in isolation would download one without a hash
        _pip(target, sources, ("--no-build-isolation", "--no-binary", ":all:"), options)
    return f"{len(packages)} packages are installed"


def _pip(
    target: Path, packages: Sequence[Package], flags: Sequence[str], options: argparse.Namespace
) -> None:
    requirements = target / "requirements.txt"
    requirements.write_text("".join(each.requirement + "\n" for each in packages), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "pip", "--python", str(target), "install", "--quiet", "--no-deps"]
    command += ["--require-hashes", "--no-compile", *flags, "--requirement", str(requirements)]
    scratch = target / "tmp"  # packages of several gigabytes are unpacked there first
    scratch.mkdir(exist_ok=True)
    environment = {**os.environ, **_OFF, "TMPDIR": str(scratch)}
    for attempt in range(1, options.tries + 1):
        ended = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        if ended.returncode == 0:
            shutil.rmtree(scratch, ignore_errors=True)
            return
        said = ended.stdout.decode(errors="replace").strip()
        print(said, flush=True)
        if _is_final(said) or attempt == options.tries:
            raise SetupError(f"the packages cannot be installed: {_last_error(said)}")
        print(
            f"try {attempt} of {options.tries} failed; the next is in {options.wait * attempt:g} s",
            flush=True,
        )
        time.sleep(options.wait * attempt)


def _is_final(said: str) -> bool:
    """Return whether another try would fail likewise: a wrong hash, or a full disk."""
    return any(each in said for each in (_WRONG, "No space left on device", "No module named pip"))


def _last_error(said: str) -> str:
    if _WRONG in said:
        names = [
            line.split()[0] for line in said.splitlines() if "from https://" in line or "from file:" in line
        ]
        return (
            f"the package index served a file that is not the locked one: {', '.join(names) or 'see above'}"
        )
    errors = [line for line in said.splitlines() if line.startswith("ERROR: ")]
    return (errors[-1].removeprefix("ERROR: ") if errors else said[-300:]) or "pip printed nothing"


def _unpack(archive: Path, site: Path) -> None:
    with tarfile.open(archive, "r:bz2") as code:
        code.extractall(site, **_filter())  # noqa: S202 - its digest is the expected one


def _filter() -> dict[str, Any]:
    """Return the argument that refuses members outside of the folder; Python 3.11 has it from 3.11.4 on."""
    return {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
