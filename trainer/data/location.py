"""From the URI a user gives to the folder that is read.

Only what the operating system mounts can be memory-mapped. Object stores will be read through
fsspec into a local cache; this is the one place that decides, so nothing else changes then.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainer.errors import DataError


def local_directory(uri: str) -> Path:
    """The folder that a plain path or a file:// URI names."""
    scheme, separator, _ = uri.partition("://")
    if not separator:
        return _existing(Path(uri).expanduser())
    if scheme.lower() != "file":
        raise DataError(
            f"dataset {uri!r}: the scheme {scheme!r} cannot be read yet, only paths and file://; "
            "copy or mount the dataset on this machine and give its path"
        )
    parts = urlsplit(uri)
    if parts.netloc not in {"", "localhost"}:
        raise DataError(f"dataset {uri!r}: names the host {parts.netloc!r}; a local URI is file:///path")
    return _existing(Path(unquote(parts.path)))


def _existing(directory: Path) -> Path:
    if not directory.exists():
        raise DataError(f"dataset {directory}: no such folder; `cloudrec data prepare` makes one")
    if not directory.is_dir():
        raise DataError(f"dataset {directory}: a file, but a dataset is the folder that holds dataset.json")
    return directory
