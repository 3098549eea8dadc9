"""What Ctrl-C leaves of `data` and `image`: files, uploads, layers; and the commands for them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cloudrec.cli.interrupted import Messages

_MANIFEST = "dataset.json"  # a folder without it is no dataset
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
# How each build tool removes what an unfinished build has left.
_PRUNE = {"docker": "docker builder prune", "podman": "podman image prune", "buildah": "buildah prune"}


@dataclass(kw_only=True)
class FolderInHand:
    """A folder that a command writes.

    Attributes:
        out: the folder.
        is_dataset: whether it gets a dataset, which is built apart and moved into place at the end.
    """

    out: Path
    is_dataset: bool = False

    def messages(self, arguments: Sequence[str]) -> Messages:
        """Return the message and the remedy after Ctrl-C."""
        try:
            files = [path for path in self.out.rglob("*") if path.is_file() and path.name != ".lock"]
            size = sum(path.stat().st_size for path in files)
        except OSError as error:
            return f"interrupted; {self.out} cannot be read: {error}", _again(arguments)
        if self.is_dataset and (self.out / _MANIFEST).exists():
            return f"interrupted; the dataset that {self.out} has is as it was", _again(arguments)
        if not files:
            return f"interrupted; nothing is left in {self.out}", _again(arguments)
        kept = f"interrupted; {self.out} has {len(files)} files ({_size(size)}) and is incomplete"
        more = () if self.is_dataset or "--overwrite" in arguments else ("--overwrite",)
        return kept, f"{_again((*arguments, *more))}\nremove: `rm -r {shlex.quote(str(self.out))}`"


@dataclass(kw_only=True)
class UploadInHand:
    """An upload of a dataset.

    Attributes:
        uri: where it is sent; empty until that is known.
        files: the number of files to send.
        total: their bytes.
        sent: the bytes that were sent so far.
    """

    uri: str = ""
    files: int = 0
    total: int = 0
    sent: int = 0

    def messages(self, arguments: Sequence[str]) -> Messages:
        """Return the message and the remedy after Ctrl-C; the store is not asked."""
        if not self.uri:
            return "interrupted; nothing was sent", _again(arguments)
        message = (
            f"interrupted; {_size(self.sent)} of {_size(self.total)} ({self.files:,} files) were sent to "
            f"{self.uri}, which is no dataset without {_MANIFEST}"
        )
        remove = f"remove: delete {self.uri} with the tool of that storage"
        return message, f"{_again(arguments)} sends only what is not there\n{remove}"


@dataclass(kw_only=True)
class ImageInHand:
    """An image that is built or pushed.

    Attributes:
        name: the image, or where it is pushed; empty until that is known.
        builder: the build tool; empty until it is known.
        is_push: whether it is pushed.
    """

    name: str = ""
    builder: str = ""
    is_push: bool = False

    def messages(self, arguments: Sequence[str]) -> Messages:
        """Return the message and the remedy after Ctrl-C; neither the tool nor the registry is asked."""
        if not self.name:
            return "interrupted; nothing was built or pushed", _again(arguments)
        if self.is_push:
            message = f"interrupted; {self.name} is not recorded as pushed; the registry may have its layers"
            return message, f"{_again(arguments)} sends only layers that are not there"
        tool = self.builder or "the build tool"
        message = f"interrupted; {self.name} is not built; {tool} keeps the steps that were done"
        prune = _PRUNE.get(self.builder)
        remove = f"\nremove: `{prune}` removes what unfinished builds have left" if prune else ""
        return message, f"{_again(arguments)} repeats none of them{remove}"


def _again(arguments: Sequence[str]) -> str:
    return f"continue: `{shlex.join(['cloudrec', *arguments])}`"


def _size(count: int) -> str:
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"
