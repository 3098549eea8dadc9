"""Where a run's files are on the cluster: a shared folder, seen from here or through a login node."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from cloudrec.errors import StorageError
from cloudrec.launch._slurm.shell import SshShell

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cloudrec.launch._slurm.settings import SlurmSettings
    from cloudrec.launch._slurm.shell import Shell
    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.runspec import RunSpec

CONFIG = "CLOUDREC_SSH_CONFIG"
_COPY_S = 600.0
_ABSENT = 44  # what our own commands end with where there is no such file
_READ = '[ -e "$1" ] || exit 44; exec tail -c "+$2" -- "$1"'
_READ_PART = '[ -e "$1" ] || exit 44; tail -c "+$2" -- "$1" | head -c "$3"'
_WRITE = 'mkdir -p -- "${1%/*}" && cat >"$1.part.$$" && mv -- "$1.part.$$" "$1"'
_CREATE = (
    'mkdir -p -- "${1%/*}" && cat >"$1.part.$$" || exit 1; '
    'ln -- "$1.part.$$" "$1" 2>/dev/null; code=$?; rm -f -- "$1.part.$$"; [ $code = 0 ] || exit 44'
)
_ROOT = 'echo "${CLOUDREC_HOME:-$HOME/.cloudrec}"'


def root_of(run: RunFolder, settings: SlurmSettings, shell: Shell) -> str:
    """Return the folder on the cluster below which runs write: the home's, unless another one is named."""
    if settings.folder:
        return settings.folder.rstrip("/")
    if not settings.host:
        return str(run.path.parent.parent)
    done = shell.run(["sh", "-c", _ROOT])
    root = done.text.strip()
    if done.code or not root.startswith("/"):
        raise StorageError(f"{settings.host} does not tell where its home is: {done.err or root}")
    return root


def results_of(root: str, name: str) -> str:
    """Return a run's own folder on the cluster."""
    return f"{root}/runs/{name}"


def seen_from_here(spec: RunSpec, settings: SlurmSettings, root: str) -> RunSpec:
    """Return the run's spec with its storage as this machine reaches it."""
    storage = f"ssh://{settings.host}{quote(root)}" if settings.host else root
    config = {CONFIG: settings.ssh_config} if settings.ssh_config else {}
    return replace(spec, storage=storage, environment={**spec.environment, **config})


class SshPlace:
    """A folder of a login node, by the programs that every system has.

    Args:
        uri: ssh://user@host/folder.
        environment: may name a file of settings for ssh.
    """

    def __init__(self, uri: str, environment: Mapping[str, str]) -> None:
        parts = urlsplit(uri)
        self.uri = uri
        self._root = PurePosixPath(unquote(parts.path))
        self._shell = SshShell(
            host=parts.netloc, config=environment.get(CONFIG) or os.environ.get(CONFIG, "")
        )

    def read(self, name: str, *, start: int = 0, limit: int | None = None) -> bytes | None:
        """Return a file's bytes."""
        if limit is None:
            return self._sh(_READ, name, str(start + 1))
        return self._sh(_READ_PART, name, str(start + 1), str(limit))

    def write(self, name: str, data: bytes) -> None:
        """Replace a file, whole or not at all."""
        self._sh(_WRITE, name, given=data)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that is not there yet."""
        return self._sh(_CREATE, name, given=data) is not None

    def fetch(self, name: str, target: Path) -> None:
        """Copy a file to this machine."""
        data = self.read(name)
        if data is None:
            raise FileNotFoundError(name)
        target.write_bytes(data)

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of every file below a folder."""
        return {
            f"{prefix.rstrip('/')}/{name}".lstrip("/"): size
            for name, size in self._find(prefix, "-type", "f").items()
        }

    def children(self, prefix: str) -> dict[str, int]:
        """Return what is directly in a folder."""
        files = self._find(prefix, "-maxdepth", "1", "-type", "f")
        folders = self._find(prefix, "-mindepth", "1", "-maxdepth", "1", "-type", "d")
        return dict(sorted({**files, **dict.fromkeys(folders, -1)}.items()))

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._told(["rm", "-f", "--", str(self._root / name)])

    def _find(self, prefix: str, *tests: str) -> dict[str, int]:
        folder = str(self._root / prefix)
        script = f'[ -d "$1" ] || exit 0; exec find "$1" {shlex.join(tests)} ! -name ".*" -printf "%s %P\\0"'
        text = (self._told(["sh", "-c", script, "sh", folder]) or b"").decode(errors="replace")
        pairs = (line.partition(" ") for line in text.split("\0") if line)
        return dict(sorted((name, int(size)) for size, _, name in pairs))

    def _sh(self, script: str, name: str, *more: str, given: bytes = b"") -> bytes | None:
        return self._told(["sh", "-c", script, "sh", str(self._root / name), *more], given=given, absent=True)

    def _told(self, words: list[str], *, given: bytes = b"", absent: bool = False) -> bytes | None:
        done = self._shell.run(words, given=given, timeout_s=_COPY_S)
        if absent and done.code == _ABSENT:
            return None
        if done.code:
            raise StorageError(f"{self.uri}: {done.err or f'{words[0]} ended with {done.code}'}")
        return done.out
