"""Prepares a node for a user's script: the code in the run's folder, and its requirements in a layer.

A layer is a virtual environment with what the requirements add to this Python's own packages. Its name is a
hash of the requirements, so runs with equal requirements share it. It refers to this Python's packages, so
torch is not installed again.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import platform
import re
import shutil
import site
import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.errors import DataError, UsageError
from cloudrec.home import draft_of, make_private, storage_error, write_atomically
from cloudrec.launchers.base.results_store import open_place
from cloudrec.launchers.base.script_program import ARCHIVE, FOLDER, READY, STOP, UserScript
from cloudrec_contract.layout import code_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec

_DIGEST = ".digest"
_COMPLETE = ".cloudrec-complete"
# A requirement that names a file: what it installs is not determined by its text.
_LOCAL = re.compile(r"^\s*(-|\.|/|file:)|@\s*(\.|/|file:)", re.MULTILINE)
_KEY = 20  # digits of a layer's hash
_TRIES, _PAUSE_S = 3, 5.0
_ERROR_LINES = 5  # of pip's output in a message
_PIP = ("-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-cache-dir")
# A layer finds packages as this Python does, also those of editable installs, whose .pth files it reads.
_PTH = "cloudrec-base.pth"


@dataclass(frozen=True, kw_only=True)
class NodeFolders:
    """Where a node is prepared.

    Attributes:
        run: the run's folder on this node.
        layers: the folder of all layers.
        environment: variables for pip, besides those of this process.
    """

    run: Path
    layers: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def deliver(run: RunFolder, spec: RunSpec) -> None:
    """Copy the packed folder of a run's script into the run's storage, unless it is there already.

    Raises:
        DataError: the run's folder does not have it.
        StorageError: the storage refuses.
    """
    if spec.script is None:
        return
    name, storage = code_name(spec.script.digest), open_place(spec.storage, spec.environment)
    if name not in storage.sizes(name):
        storage.write(name, read_archive(run, spec.script.digest))


def keep_archive(run: RunFolder, data: bytes) -> None:
    """Write the packed folder into a new run's folder; StorageError if the disk refuses."""
    path = run.path / ARCHIVE
    try:
        draft_of(path).write_bytes(data)
        draft_of(path).replace(path)
    except OSError as error:
        raise storage_error(path, error) from error


def read_archive(run: RunFolder, digest: str) -> bytes:
    """Return the packed folder of a run on the machine that launched it; DataError if it is missing."""
    try:
        data = (run.path / ARCHIVE).read_bytes()
    except OSError as error:
        raise DataError(
            f"the run {run.name!r} has no {ARCHIVE}: {error.strerror}", remedy="launch a new run"
        ) from error
    return _checked(data, digest, str(run.path / ARCHIVE))


def fetch(storage: str, digest: str) -> bytes:
    """Return the packed folder from a storage; DataError if it is missing or damaged."""
    name = code_name(digest)
    data = open_place(storage).read(name)
    if data is None:
        raise DataError(f"{storage}/{name} does not exist", remedy="resume the run, which writes it again")
    return _checked(data, digest, f"{storage}/{name}")


def _checked(data: bytes, digest: str, where: str) -> bytes:
    if hashlib.sha256(data).hexdigest() != digest:
        raise DataError(f"{where} is damaged: its SHA-256 differs", remedy="remove it, and launch a new run")
    return data


def prepare(
    script: UserScript, folders: NodeFolders, read: Callable[[], bytes], say: Callable[[str], None]
) -> None:
    """Unpack the code and install the requirements, unless that was done; afterwards ranks can start.

    Args:
        script: the script.
        folders: where.
        read: returns the packed folder.
        say: prints a line.

    Raises:
        DataError: the packed folder is missing or damaged.
        UsageError: pip refuses the requirements.
        StorageError: the disk refuses.
    """
    try:
        (folders.run / STOP).unlink(missing_ok=True)
        _unpack(script, folders.run, read)
        python = _layer(script, folders, say) if script.requirements else sys.executable
    except OSError as error:
        raise storage_error(folders.run, error) from error
    ready = {
        "python": python,
        "file": script.file,
        "arguments": script.arguments,
        "secrets": script.secrets,
    }
    write_atomically(folders.run / READY, json.dumps(ready))


def _unpack(script: UserScript, run: Path, read: Callable[[], bytes]) -> None:
    """Unpack the code once: what the script writes beside it is there again after a restart."""
    target, mark = run / FOLDER, run / f"{FOLDER}{_DIGEST}"
    if mark.exists() and mark.read_text(encoding="utf-8") == script.digest:
        return
    shutil.rmtree(target, ignore_errors=True)
    make_private(target)
    with tarfile.open(fileobj=io.BytesIO(read()), mode="r:gz") as archive:
        # The filter refuses names that lead out of the folder; the first releases of 3.11 have none.
        safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(target, **safe)  # noqa: S202 - cloudrec packed it, and its digest is checked
    metrics = target / "metrics.jsonl"
    if not metrics.exists() and not metrics.is_symlink():
        # A script that writes ./metrics.jsonl writes the run's file.
        metrics.symlink_to(os.path.relpath(run / "metrics.jsonl", target))
    write_atomically(mark, script.digest)


def _layer(script: UserScript, folders: NodeFolders, say: Callable[[str], None]) -> str:
    """Return the Python of the layer with the script's requirements, which is made if it is missing."""
    file = folders.run / FOLDER / script.requirements
    layer = folders.layers / _key(script, file.read_bytes())
    python = layer / "bin" / "python"
    make_private(folders.layers)
    with _alone(layer):
        if (layer / _COMPLETE).exists():
            return str(python)
        say(f"installing {script.requirements} into layer {layer.name}")
        started = time.monotonic()
        shutil.rmtree(layer, ignore_errors=True)
        _make_environment(layer)
        _install(python, script.requirements, folders)
        (layer / _COMPLETE).touch()
        say(f"installed {script.requirements} in {time.monotonic() - started:.1f} s")
    return str(python)


def _key(script: UserScript, requirements: bytes) -> str:
    parts = [requirements.decode(errors="replace"), sys.version, platform.machine(), sys.prefix]
    if _LOCAL.search(parts[0]):
        parts.append(script.digest)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_KEY]


@contextmanager
def _alone(layer: Path) -> Iterator[None]:
    descriptor = os.open(layer.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make_environment(layer: Path) -> None:
    import importlib.util  # noqa: PLC0415 - only where there are requirements
    import venv  # noqa: PLC0415 - likewise

    has_pip = importlib.util.find_spec("pip") is not None
    venv.EnvBuilder(with_pip=not has_pip, symlinks=True).create(layer)
    packages = next(layer.glob("lib/python*/site-packages"))
    bases = (*site.getsitepackages(), site.getusersitepackages())
    lines = (f"import site; site.addsitedir({base!r})\n" for base in bases if Path(base).is_dir())
    (packages / _PTH).write_text("".join(lines), encoding="utf-8")


def _install(python: Path, requirements: str, folders: NodeFolders) -> None:
    """Let pip install a file of requirements; UsageError with pip's last lines if it fails."""
    given = {**os.environ, **folders.environment}
    environment = {name: value for name, value in given.items() if name != "PYTHONSAFEPATH"}
    lines: list[str] = []
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE_S)
        done = subprocess.run(
            [str(python), "-P", *_PIP, "--requirement", requirements],
            cwd=folders.run / FOLDER,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode == 0:
            return
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        if not any("connection" in line.lower() for line in lines):
            break  # only a failure of the network is worth another try
    lines = [line for line in lines if line.startswith("ERROR")] or lines
    raise UsageError(
        f"pip cannot install {requirements}: {' / '.join(lines[-_ERROR_LINES:]) or 'it printed nothing'}",
        remedy="correct the requirements; PIP_INDEX_URL (--env) names another package index",
    )
