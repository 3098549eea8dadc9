"""Packs a working folder into one archive: the same files give the same bytes, and so the same digest.

Left out is what `.gitignore` and `.cloudrecignore` name, in any folder, by git's rules. Of two rules the
later one counts: first the rules here, then `.gitignore` from the top of the repository downwards, then
`.cloudrecignore`. So a line `!data.csv` in `.cloudrecignore` packs a file that `.gitignore` leaves out.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pathspec import GitIgnoreSpec

    _Placed = tuple[Path, GitIgnoreSpec]

IGNORE_FILES = (".gitignore", ".cloudrecignore")
MOST_BYTES = 200 * 10**6
MOST_FILES = 20_000
# Of no use on a node, or secret: a `.env` file holds what `--env-file` and `--secret` are for.
_NEVER = (
    *(".git/", ".hg/", ".svn/", "__pycache__/", "*.py[co]", ".venv/", "venv/", "node_modules/"),
    *(".mypy_cache/", ".ruff_cache/", ".pytest_cache/", ".ipynb_checkpoints/", ".DS_Store"),
    *(".env", ".env.*", ".netrc", "id_rsa", "id_ed25519", ".aws/", ".ssh/", ".kube/"),
)
_VENV = "pyvenv.cfg"  # marks a virtual environment, whatever its name
_TIME = 315532800  # 1980-01-01, the earliest that all archive formats know
_LEVEL = 3  # of gzip: source code is small, and a dry run packs it too
_SHOWN = 3  # files that a message names


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A packed folder.

    Attributes:
        data: the bytes of the archive, a tar file with gzip.
        digest: their SHA-256.
        files: the number of files.
        size: the bytes of the files before they were packed.
    """

    data: bytes = field(repr=False)
    digest: str
    files: int
    size: int


def pack(folder: Path, *, without: Iterable[Path] = (), most_files: int = MOST_FILES) -> Archive:
    """Return the archive of a folder.

    Args:
        folder: the folder.
        without: files and folders that are left out, whatever the ignore files say.
        most_files: the limit of their number.

    Raises:
        UsageError: it is no folder, or it is too large.
        DataError: a file cannot be read, a link leads out of it, or an ignore file is invalid.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} to run in", remedy="name it with --workdir")
    paths = _chosen(folder.resolve(), {path.resolve() for path in without}, most_files)
    size = sum(path.lstat().st_size for path in paths)
    data = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=data, mode="wb", compresslevel=_LEVEL, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in paths:
            _add(archive, path, folder.resolve())
    content = data.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    return Archive(data=content, digest=digest, files=len(paths), size=size)


def _chosen(root: Path, without: set[Path], most_files: int) -> list[Path]:
    """Return the files to pack, sorted; UsageError if they exceed a limit."""
    found: list[Path] = []
    sizes: dict[Path, int] = {}
    for path in _walk(root, _IgnoreRules.above(root), without):
        found.append(path)
        sizes[path] = path.lstat().st_size
        if len(found) > most_files:
            raise UsageError(
                f"the folder {root} has more than {most_files:,} files to send",
                remedy="name a smaller --workdir, or list what the script does not need in .cloudrecignore",
            )
    if sum(sizes.values()) > MOST_BYTES:
        largest = sorted(sizes, key=lambda path: -sizes[path])[:_SHOWN]
        named = ", ".join(f"{path.relative_to(root)} ({sizes[path] / 1e6:.1f} MB)" for path in largest)
        raise UsageError(
            f"the folder {root} has {sum(sizes.values()) / 1e6:.1f} MB to send; the limit is "
            f"{MOST_BYTES / 1e6:.0f} MB. The largest files are {named}",
            remedy="list what the script does not need in .cloudrecignore; data belongs into the storage",
        )
    return sorted(found)


class _IgnoreRules:
    """The ignore files that hold in one folder: each spec with the folder that its patterns begin at."""

    def __init__(self, specs: Sequence[_Placed], own: Sequence[_Placed]) -> None:
        self._specs = specs  # of the rules here and .gitignore, outermost first
        self._own = own  # of .cloudrecignore

    @classmethod
    def above(cls, root: Path) -> _IgnoreRules:
        """Return the rules that hold at a folder: also those of the repository that it is part of."""
        rules = cls([(root, _spec(_NEVER, root))], [])
        parents = [root, *root.parents]
        top = next((number for number, path in enumerate(parents) if (path / ".git").exists()), 0)
        for folder in reversed(parents[1 : top + 1]):
            rules = rules.within(folder, names=(IGNORE_FILES[0],))
        return rules

    def within(self, folder: Path, *, names: Sequence[str] = IGNORE_FILES) -> _IgnoreRules:
        """Return the rules of a folder below."""
        read = {name: _read(folder / name) for name in names}
        git, own = read.get(IGNORE_FILES[0]), read.get(IGNORE_FILES[1])
        if git is None and own is None:
            return self
        return _IgnoreRules(
            [*self._specs, *([(folder, git)] if git else [])], [*self._own, *([(folder, own)] if own else [])]
        )

    def ignore(self, path: Path, *, is_folder: bool) -> bool:
        """Return whether a path is left out."""
        for base, spec in reversed([*self._specs, *self._own]):
            name = path.relative_to(base).as_posix() + ("/" if is_folder else "")
            matched = spec.check_file(name).include
            if matched is not None:
                return matched
        return False


def _walk(folder: Path, rules: _IgnoreRules, without: set[Path]) -> Iterator[Path]:
    rules = rules.within(folder)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(folder, error) from error
    for entry in entries:
        path, is_folder = folder / entry.name, entry.is_dir(follow_symlinks=False)
        if path in without or rules.ignore(path, is_folder=is_folder):
            continue
        if is_folder and (path / _VENV).exists():
            continue
        if is_folder:
            yield from _walk(path, rules, without)
        elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
            yield path  # sockets, pipes and devices are no part of a program


def _read(path: Path) -> GitIgnoreSpec | None:
    try:
        return _spec(path.read_text(encoding="utf-8").splitlines(), path)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _spec(lines: Iterable[str], path: Path) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - only a run with a script packs a folder

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise DataError(f"{path}: {error}", remedy="correct the pattern") from error


def _add(archive: tarfile.TarFile, path: Path, root: Path) -> None:
    """Add a file without what differs between machines: owner, times, and all of its mode but `x`."""
    entry = tarfile.TarInfo(path.relative_to(root).as_posix())
    entry.mtime = _TIME
    try:
        if path.is_symlink():
            entry.type, entry.linkname = tarfile.SYMTYPE, _inner_target(path, root)
            archive.addfile(entry)
            return
        with path.open("rb") as file:
            data = file.read()
            entry.mode = 0o755 if os.fstat(file.fileno()).st_mode & stat.S_IXUSR else 0o644
    except OSError as error:
        raise _unreadable(path, error) from error
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def _inner_target(path: Path, root: Path) -> str:
    """Return a link's target as a path from the link; DataError if it is outside of the folder."""
    target = Path(os.path.normpath(path.parent / path.readlink()))
    if not target.is_relative_to(root) or not path.resolve().is_relative_to(root):
        raise DataError(
            f"{path} is a link to {target}, which is not in the folder {root} that is sent",
            remedy="list the link in .cloudrecignore, or replace it by the file",
        )
    return os.path.relpath(target, path.parent)


def _unreadable(path: Path, error: OSError | UnicodeDecodeError) -> DataError:
    reason = error.strerror if isinstance(error, OSError) else error.reason
    return DataError(
        f"cannot read {path}: {reason}", remedy="make it readable, or list it in .cloudrecignore"
    )
