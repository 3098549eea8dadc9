"""Safe local paths for names from a bucket, a cluster or a dataset.

An object store accepts any text as a key, for example `pods/../../.ssh/authorized_keys`. Each such name is
checked here before it becomes a local path, so that it cannot lead out of its folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

# Bytes. NAME_MAX of Linux and macOS is 255; the rest is for the suffix of a temporary file's name.
_LONGEST_PART = 200
_LONGEST_NAME = 1024  # bytes: the longest key of S3
_SHOWN = 200  # characters of a name in a message


class UnsafeNameError(DataError):
    """A name is not a relative path that stays below its folder."""


def check_name(name: str) -> str:
    """Return the name if it is safe: parts joined by '/', each the plain name of a file or folder.

    Raises:
        UnsafeNameError: the name is empty, absolute or too long; a part is empty, '.' or '..'; or it has a
            backslash or an unprintable character.
    """
    reason = _what_is_wrong(name)
    if reason:
        raise UnsafeNameError(f"the name {name[:_SHOWN]!r} {reason}")
    return name


def check_part(name: str) -> str:
    """Return the name if it is safe as that of one file or folder, so without '/'; raises UnsafeNameError."""
    if "/" in name:
        raise UnsafeNameError(f"the name {name[:_SHOWN]!r} is a path, not the name of one file or folder")
    return check_name(name)


def safe_join(folder: Path, name: str) -> Path:
    """Return the path of `name` below `folder`.

    Raises:
        UnsafeNameError: the name is unsafe (see `check_name`), or a symbolic link leads out of the folder.
    """
    path = folder / check_name(name)
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # a loop of links
        raise UnsafeNameError(f"the name {name[:_SHOWN]!r} cannot be resolved: {error}") from error
    if not inside:
        raise UnsafeNameError(f"the name {name[:_SHOWN]!r} leads out of {folder} by a symbolic link")
    return path


def _what_is_wrong(name: str) -> str:
    """Return why a name is unsafe; empty if it is safe."""
    parts = name.split("/")
    if name.startswith("/"):
        return "is absolute"
    if {"", ".", ".."} & set(parts):
        return "has a part that is empty, '.' or '..'"
    if "\\" in name or not name.isprintable():
        return "holds a backslash or a character that cannot be printed"
    if max(len(part.encode()) for part in parts) > _LONGEST_PART or len(name.encode()) > _LONGEST_NAME:
        return f"is longer than {_LONGEST_PART} bytes in a part, or {_LONGEST_NAME} in all"
    return ""
