"""Ways to damage a committed checkpoint; each must be detected."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def written(folder: Path, kind: str) -> Path:
    """Return the file that rank 0 wrote in the folder of a step."""
    return next(folder.glob(f"rank-00000.*.{kind}"))


def commit_of(folder: Path) -> Path:
    """The commit in the folder of a step."""
    (path,) = folder.glob("commit-*.json")
    return path


def flip(path: Path, position: int) -> None:
    """Change a bit."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda folder: flip(written(folder, "bin"), 1000),
    "a truncated file": lambda folder: os.truncate(written(folder, "bin"), 500),
    "an empty file": lambda folder: os.truncate(written(folder, "bin"), 0),
    "a missing file": lambda folder: written(folder, "bin").unlink(),
    "a flipped bit in a manifest": lambda folder: flip(written(folder, "json"), 70),
    "a missing manifest": lambda folder: written(folder, "json").unlink(),
    "a flipped bit in the commit": lambda folder: flip(commit_of(folder), 70),
    "a truncated commit": lambda folder: os.truncate(commit_of(folder), 50),
    "an empty commit": lambda folder: os.truncate(commit_of(folder), 0),
}

DAMAGES_OF_A_FILE: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda path: flip(path, path.stat().st_size // 2),
    "half of it": lambda path: os.truncate(path, path.stat().st_size // 2),
    "missing": lambda path: path.unlink(),
}


def _another(path: Path) -> Path | None:
    """Return a file of the same kind in another step's folder, the newest before it if there is one."""
    kind = path.name.partition("-")[0]
    alike = [
        each
        for each in path.parent.parent.glob(f"step-*/{kind}-*{path.suffix}")
        if each.parent != path.parent
    ]
    older = [each for each in alike if each.parent.name < path.parent.name]
    return max(older, default=max(alike, default=None))


def replace_by_older(path: Path) -> None:
    """Put the contents of another step's file in its place."""
    other = _another(path)
    path.write_bytes(other.read_bytes() if other is not None else b"")


def swap(path: Path) -> None:
    """Exchange its contents with those of a file beside it: two files of one checkpoint are damaged.

    Not with another chain's file: that would damage both of the chains that are kept.
    """
    beside = [each for each in sorted(path.parent.iterdir()) if each != path and each.is_file()]
    if not beside:
        path.write_bytes(b"")
        return
    other, mine = beside[0], path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(mine)


EVERY_DAMAGE: dict[str, Callable[[Path], object]] = {
    **DAMAGES_OF_A_FILE,
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"0"),
    "an older one": replace_by_older,
    "swapped with a neighbour": swap,
}
