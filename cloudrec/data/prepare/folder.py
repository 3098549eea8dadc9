"""The dataset's folder: locked by one process, and replaced as a whole, so that it is never incomplete."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cloudrec import home
from cloudrec.data.format import encoding, manifest
from cloudrec.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_BUILD = ".tmp"
_LOCK = ".lock"
_BAD_ROWS = "bad_rows.jsonl"
_PATTERNS = {  # files of each folder
    "train": ("shard-*.npy",),
    "test": ("shard-*.npy",),
    encoding.FOLDER: ("*.npy", "*.jsonl"),
}


@dataclass(frozen=True, kw_only=True)
class BadRow:
    """A skipped row: one line of bad_rows.jsonl."""

    path: str
    line: int  # in its file, counted from 1
    reason: str
    value: str  # shortened

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}: {self.value!r}"


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """The temporary folders in which a dataset is built before it is moved into place."""

    out: Path

    @property
    def staging(self) -> Path:
        """The new train/, test/ and vocabulary/."""
        return self.out / _BUILD / "new"

    @property
    def scratch(self) -> Path:
        """Files that are needed only during the build."""
        return self.out / _BUILD / "scratch"

    def commit(self, content: dict[str, Any], bad_rows: Sequence[BadRow]) -> None:
        """Replace the old dataset by the one in staging; it counts once dataset.json exists."""
        # The old dataset.json is removed first and the new one written last: a crash in between leaves a
        # folder that no reader takes for a dataset.
        (self.out / manifest.NAME).unlink(missing_ok=True)
        (self.out / _BAD_ROWS).unlink(missing_ok=True)
        for name, patterns in _PATTERNS.items():
            self._replace(name, patterns)
        if bad_rows:
            lines = "".join(json.dumps(asdict(row)) + "\n" for row in bad_rows)
            home.write_atomically(self.out / _BAD_ROWS, lines)
        home.write_atomically(self.out / manifest.NAME, json.dumps(content, indent=1) + "\n")
        _sync_folder(self.out)

    def _replace(self, name: str, patterns: Sequence[str]) -> None:
        """Replace the files of one folder by those in staging."""
        folder, made = self.out / name, list((self.staging / name).iterdir())
        for old in [old for pattern in patterns for old in folder.glob(pattern)]:
            old.unlink()
        if not made and name == encoding.FOLDER:  # the encoding has no files
            with suppress(OSError):  # it does not exist, or contains other files
                folder.rmdir()
            return
        folder.mkdir(exist_ok=True)
        for new in made:
            new.rename(folder / new.name)
        _sync_folder(folder)


@contextmanager
def claimed(out: Path, *, overwrite: bool) -> Iterator[Workspace]:
    """Lock a folder for writing; remove the temporary files of a dead process, and ours on any failure."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file, not a folder", remedy="name another output folder")
    home.make_private(out)
    with home.locked(out / _LOCK, what=f"the dataset {out}"):
        if (out / manifest.NAME).exists() and not overwrite:
            raise DataError(
                f"{out} holds a dataset already", remedy="name another folder, or pass --overwrite"
            )
        workspace = Workspace(out=out)
        try:
            shutil.rmtree(out / _BUILD, ignore_errors=True)
            for folder in (workspace.scratch, *(workspace.staging / name for name in _PATTERNS)):
                folder.mkdir(parents=True)
            yield workspace
        except OSError as error:
            raise home.storage_error(out, error) from error
        finally:
            shutil.rmtree(out / _BUILD, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
