"""The dataset's folder: claimed by one process, filled at one stroke, never left half-made."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec import home
from cloudrec.data import manifest
from cloudrec.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BUILD = ".tmp"
_LOCK = ".lock"
_BAD_ROWS = "bad_rows.jsonl"
_SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Where a dataset is built before it is moved into its folder."""

    out: Path

    @property
    def staging(self) -> Path:
        """Holds train/ and test/ as they will be."""
        return self.out / _BUILD / "new"

    @property
    def scratch(self) -> Path:
        """Holds what is needed only while building."""
        return self.out / _BUILD / "scratch"

    def commit(self, content: dict[str, Any], bad_rows: list[dict[str, Any]]) -> None:
        """Replace the old dataset by the one in staging; it counts once dataset.json is there."""
        (self.out / manifest.NAME).unlink(missing_ok=True)
        (self.out / _BAD_ROWS).unlink(missing_ok=True)
        for split in _SPLITS:
            for old in (self.out / split).glob("shard-*.npy"):
                old.unlink()
            (self.out / split).mkdir(exist_ok=True)
            for new in (self.staging / split).iterdir():
                new.rename(self.out / split / new.name)
            _sync_folder(self.out / split)
        if bad_rows:
            lines = "".join(json.dumps(row) + "\n" for row in bad_rows)
            home.write_atomically(self.out / _BAD_ROWS, lines)
        home.write_atomically(self.out / manifest.NAME, json.dumps(content, indent=1) + "\n")
        _sync_folder(self.out)


@contextmanager
def claimed(out: Path, *, overwrite: bool) -> Iterator[Workspace]:
    """Hold a folder for writing; what a dead process left there is removed, and so is ours on any failure."""
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
            for folder in (workspace.scratch, *(workspace.staging / split for split in _SPLITS)):
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
