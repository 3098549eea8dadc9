"""Brings a dataset from an object store to this node's disk, once for all its ranks.

What is there already and whole is kept, so a download that was interrupted goes on. Each file appears under
its name only when its bytes have been checked against dataset.json.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cloudrec.errors import DataError, PreflightError
from cloudrec.home import storage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cloudrec.launch.place import Place

MANIFEST = "dataset.json"
_THREADS = 8
_TRIES = 3
_MARGIN = 1.05  # of the dataset's size must be free: file systems have use for some
_CHUNK = 2**20
_SAY_EVERY_S = 10.0


@dataclass(frozen=True, kw_only=True)
class StagedFile:
    """One file of a dataset.

    Args:
        name: its path below the dataset's folder.
        size: bytes.
        crc32: what its bytes must give; None where nobody tells.
    """

    name: str
    size: int
    crc32: int | None


def stage(place: Place, parent: Path, *, say: Callable[[str], None]) -> Path:
    """Download a dataset, and return its folder below `parent`.

    Raises:
        DataError: it is not there, or its files are not what its dataset.json says.
        PreflightError: the disk is too small for it.
        StorageError: the store or the disk refuses.
    """
    target = parent / hashlib.sha256(place.uri.rstrip("/").encode()).hexdigest()[:16]
    target.mkdir(parents=True, exist_ok=True)
    with _alone(target):
        text, files = list_files(place)
        marks = _Marks(target / ".checked.jsonl")
        missing = [file for file in files if not _is_here(target, file, marks)]
        _check_room(target, sum(file.size for file in missing), place.uri)
        if missing:
            _download(place, target, missing, marks, say)
        if text is not None:
            (target / MANIFEST).write_bytes(text)  # last: it tells that the dataset is whole
    return target


def list_files(place: Place) -> tuple[bytes | None, list[StagedFile]]:
    """Return dataset.json and the files that it names; without one, None and every file there is.

    Raises:
        DataError: there is nothing, or dataset.json is damaged.
        StorageError: the store refuses.
    """
    text = place.read(MANIFEST)
    if text is not None:
        return text, _named_files(place, text)
    sizes = place.sizes("")
    if not sizes:
        raise DataError(
            f"{place.uri}: there is no {MANIFEST}, nor any other file",
            remedy="upload a prepared dataset: `cloudrec data push`",
        )
    return None, [StagedFile(name=_safe(name), size=size, crc32=None) for name, size in sizes.items()]


def _named_files(place: Place, text: bytes) -> list[StagedFile]:
    try:
        document = json.loads(text)
        part = {key: document[key] for key in ("splits", "num_embeddings_per_feature")}
        canonical = json.dumps(part, sort_keys=True, separators=(",", ":"))
        entries = [
            entry
            for split in document["splits"].values()
            for shard in split["shards"]
            for entry in shard["files"].values()
        ]
        files = [_entry(entry) for entry in entries]
        _check_digest(document["digest"], canonical)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{place.uri}/{MANIFEST}: {what}", remedy="prepare and push it again") from error
    return files


def _check_digest(told: object, canonical: str) -> None:
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    if told != digest:
        raise ValueError(f"its digest is {told!r}, but its contents give {digest!r}")


def _entry(entry: dict[str, Any]) -> StagedFile:
    return StagedFile(name=_safe(entry["path"]), size=int(entry["bytes"]), crc32=int(entry["crc32"], 16))


def _safe(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"the file {name!r} lies outside the dataset's folder")
    return str(path)


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Hold the folder: pods that share a node's disk fetch the dataset once."""
    descriptor = os.open(target / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class _Marks:
    """Which files were checked when they came, so that going on needs no second look at their bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._known = set(lines)

    def has(self, file: StagedFile) -> bool:
        return self._line(file) in self._known

    def add(self, file: StagedFile) -> None:
        with self._lock, self._path.open("a", encoding="utf-8") as log:
            log.write(self._line(file) + "\n")

    def _line(self, file: StagedFile) -> str:
        return json.dumps([file.name, file.size, file.crc32])


def _is_here(target: Path, file: StagedFile, marks: _Marks) -> bool:
    try:
        return (target / file.name).stat().st_size == file.size and marks.has(file)
    except FileNotFoundError:
        return False


def _check_room(target: Path, size: int, uri: str) -> None:
    free = shutil.disk_usage(target).free
    if size * _MARGIN > free:
        raise PreflightError(
            f"{uri} has {size / 1e9:.2f} GB to bring, and {target.parent} has {free / 1e9:.2f} GB free",
            remedy="use nodes with a larger disk, or a dataset_path on a mounted volume",
        )


def _download(
    place: Place, target: Path, files: Sequence[StagedFile], marks: _Marks, say: Callable[[str], None]
) -> None:
    total, done, told = sum(file.size for file in files), 0, time.monotonic()
    say(f"staging {place.uri}: {len(files)} files, {total / 1e9:.3f} GB")
    started = time.monotonic()
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting = {pool.submit(_fetch, place, target, file, marks): file for file in files}
        try:
            for each in as_completed(waiting):
                each.result()
                done += waiting[each].size
                if time.monotonic() - told > _SAY_EVERY_S:
                    told = time.monotonic()
                    say(f"staging: {done / 1e9:.3f} of {total / 1e9:.3f} GB")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    seconds = max(time.monotonic() - started, 1e-9)
    say(f"staged {total / 1e9:.3f} GB in {seconds:.1f} s ({total / seconds / 1e6:.0f} MB/s)")


def _fetch(place: Place, target: Path, file: StagedFile, marks: _Marks) -> None:
    path = target / file.name
    draft = path.with_name(f".{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    problem = ""
    for _ in range(_TRIES):
        try:
            place.fetch(file.name, draft)
        except FileNotFoundError as error:
            remedy = "push it again: `cloudrec data push`"
            raise DataError(f"{place.uri}/{file.name}: is not there", remedy=remedy) from error
        except OSError as error:
            raise storage_error(draft, error) from error
        problem = _difference(draft, file)
        if not problem:
            draft.replace(path)
            marks.add(file)
            return
    draft.unlink(missing_ok=True)
    raise DataError(f"{place.uri}/{file.name}: {problem}", remedy="push it again: `cloudrec data push`")


def _difference(path: Path, file: StagedFile) -> str:
    """Return how a file differs from what it should be, "" when it does not."""
    size = path.stat().st_size
    if size != file.size:
        return f"it has {size} bytes; dataset.json says {file.size}"
    if file.crc32 is None:
        return ""
    crc = 0
    with path.open("rb") as data:
        while chunk := data.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
    return "" if crc == file.crc32 else f"its crc32 is {crc:08x}; dataset.json says {file.crc32:08x}"
