"""Where a dataset is pushed to: a folder or a bucket, by the scheme of a URI; one module each.

A module is imported when it is used, since each needs a cloud's SDK.
Every place proves what arrived in its own way: by a checksum that the store itself works out and keeps, and
where it keeps none, by reading back.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from cloudrec.errors import CloudrecError, MissingExtraError, PreflightError, StorageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cloudrec.data.manifest import ShardFile

_MODULES = {
    "file": ("folder", ""),
    "s3": ("s3", "aws"),
    "abfs": ("azure", "azure"),
    "abfss": ("azure", "azure"),
    "az": ("azure", "azure"),
    "gs": ("gcs", "gcp"),
    "gcs": ("gcs", "gcp"),
}
_PIECE = 1 << 20
_WORDS = 300  # characters of a store's own words
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})  # HTTP statuses that pass by themselves
ANSWER_S = 60.0  # without a byte


class ArrivedDamagedError(CloudrecError):
    """What the store holds is not what was sent."""


class Place(Protocol):
    """A folder or a bucket's folder; used by several threads at once."""

    uri: str

    def reach(self) -> None:
        """See that the bucket is there and may be listed."""
        ...

    def holds(self, file: ShardFile, local: Path) -> bool:
        """Tell whether this very file is there, as far as the store knows its bytes."""
        ...

    def put(self, file: ShardFile, local: Path, sent: Callable[[int], None]) -> None:
        """Send a file, in parts where it is large; `sent` is told of each part's bytes.

        Raises:
            ArrivedDamagedError: the store's checksum is not the file's.
        """
        ...

    def read(self, name: str) -> bytes | None:
        """Return a small object; None where there is none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Make a small object, or replace it, at one stroke."""
        ...

    def remove(self, name: str) -> None:
        """Remove an object that is there."""
        ...

    def status(self, error: BaseException) -> int | None:
        """Return the HTTP status that an error stands for; None where none is known."""
        ...

    def is_unanswered(self, error: BaseException) -> bool:
        """Tell whether a request got no answer."""
        ...


def find(uri: str) -> Place:
    """Return the place that a URI names; a path is a folder.

    Raises:
        UsageError: its scheme is not known, or it names no bucket.
        MissingExtraError: what reaches it is not installed.
    """
    scheme, _, rest = uri.partition("://")
    if not rest and "://" not in uri:
        scheme, rest = "file", uri
    if scheme not in _MODULES:
        raise UsageError(
            f"{uri}: the scheme {scheme!r} is not known",
            remedy=f"name a folder, or a URI with one of: {', '.join(f'{known}://' for known in _MODULES)}",
        )
    module, extra = _MODULES[scheme]
    if not rest.strip("/") or (scheme != "file" and not urlsplit(uri).netloc):
        raise UsageError(f"{uri} names no place", remedy="name one, as s3://BUCKET/FOLDER")
    try:
        found: Any = import_module(f"{__name__}.{module}")
    except ImportError as error:
        raise MissingExtraError(extra, module=(error.name or module).partition(".")[0]) from error
    place: Place = found.open_place(uri.rstrip("/"))
    return place


def is_transient(place: Place, error: Exception) -> bool:
    """Tell whether it may go well if it is tried again."""
    if isinstance(error, ArrivedDamagedError):
        return True
    if isinstance(error, (CloudrecError, FileNotFoundError, PermissionError)):
        return False
    status = place.status(error)
    return status in TRANSIENT if status is not None else place.is_unanswered(error)


def explain(place: Place, error: Exception) -> CloudrecError:
    """Say in a person's words what a store's refusal means."""
    if isinstance(error, CloudrecError):
        return error
    first = (str(error).strip().splitlines() or [""])[0][:_WORDS]  # some SDKs tell pages
    words = f"{type(error).__name__}: {first}".rstrip(". ")
    status = place.status(error)
    if status == 401:  # noqa: PLR2004 - HTTP's number
        return PreflightError(
            f"no credentials for {place.uri} ({words})",
            remedy="log in to the cloud; `cloudrec doctor` checks it",
        )
    if isinstance(error, FileNotFoundError) or status == 404:  # noqa: PLR2004 - HTTP's number
        return StorageError(
            f"{place.uri}: its bucket is not there",
            remedy="name one that exists; `cloudrec up` makes a cluster's own, which --cluster NAME finds",
        )
    if isinstance(error, PermissionError) or status == 403:  # noqa: PLR2004 - HTTP's number
        return StorageError(
            f"{place.uri}: refused ({words})",
            remedy="have whoever owns it permit you to list, read, write and delete objects there; "
            "a store with network rules also asks where you come from",
        )
    return StorageError(
        f"{place.uri}: the store did not do it ({words})",
        remedy="see whether it can be reached, then run it again: what has arrived is not sent again",
    )


def cancel_requests() -> None:
    """Give up every request that is under way: whoever waits for one goes on, with an error or nothing."""
    asyn = sys.modules.get("fsspec.asyn")
    loop = asyn.loop[0] if asyn is not None else None
    if loop is not None:
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])


def crc32_of(path: Path) -> str:
    """Return a file's crc32 as dataset.json writes it."""
    crc = 0
    with path.open("rb") as stream:
        while block := stream.read(_PIECE):
            crc = zlib.crc32(block, crc)
    return f"{crc:08x}"
