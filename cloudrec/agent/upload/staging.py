"""Downloads a dataset from an object store to this node's disk, once for all its ranks.

Complete files are kept, so a download that was interrupted continues. A file gets its name only after its
bytes have been checked against dataset.json.
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
from typing import TYPE_CHECKING, Any

from cloudrec.errors import DataError, PreflightError
from cloudrec.home import open_lock, storage_error
from cloudrec.safe_path import UnsafeNameError, check_name, safe_join
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cloudrec.launchers.base.results_store import Place

MANIFEST = "dataset.json"
_LOCK = ".lock"
_THREADS = 8
_TRIES = 3
_MARGIN = 1.05  # times the dataset's size must be free; file systems need some space themselves
_CHUNK = 2**20
_SAY_EVERY_S = 10.0


@dataclass(frozen=True, kw_only=True)
class StagedFile:
    """One file of a dataset.

    Args:
        name: its path below the dataset's folder.
        size: its size in bytes.
        crc32: the CRC-32 of its bytes; None if it is unknown.
    """

    name: str
    size: int
    crc32: int | None


def stage(place: Place, parent: Path, *, say: Callable[[str], None]) -> Path:
    """Download a dataset, and return its folder below `parent`.

    Raises:
        DataError: it is missing, or its files differ from dataset.json.
        PreflightError: the disk is too small for it.
        StorageError: the store or the disk refuses.
    """
    target = parent / hashlib.sha256(place.uri.rstrip("/").encode()).hexdigest()[:16]  # boundary: a digest
    target.mkdir(parents=True, exist_ok=True)
    # Named by the URI: a dataset that was staged before is found again, and two datasets do not mix.
    with _alone(target):
        text, files = list_files(place)
        marks = _Marks(target / ".checked.jsonl")
        missing = [file for file in files if not _is_here(target, file, marks)]
        size = sum(file.size for file in missing)
        _make_room(target, size, say)
        _check_room(target, size, place.uri)
        if missing:
            _download(place, target, missing, marks, say)
        if text is not None:
            (target / MANIFEST).write_bytes(text)  # last: it marks the dataset as complete
    return target


def list_files(place: Place) -> tuple[bytes | None, list[StagedFile]]:
    """Return dataset.json and the files that it names; without it, None and all files of the folder.

    Raises:
        DataError: there are no files, or dataset.json is damaged.
        StorageError: the store refuses.
    """
    text = place.read(MANIFEST)
    if text is not None:
        return text, _named_files(place, text)
    sizes = place.sizes("")
    if not sizes:
        raise DataError(
            f"{place.uri}: there is no {MANIFEST} and no other file",
            remedy="upload a prepared dataset: `cloudrec data push`",
        )
    try:
        return None, [StagedFile(name=_safe(name), size=size, crc32=None) for name, size in sizes.items()]
    except ValueError as error:
        raise DataError(f"{place.uri}: {error}", remedy="remove that file from the store") from error


def _named_files(place: Place, text: bytes) -> list[StagedFile]:
    try:
        document = safe_object(text)
        # The digest is of these two fields in one canonical form, as `cloudrec data prepare` computes it.
        part = {key: document[key] for key in ("splits", "num_embeddings_per_feature")}
        canonical = json.dumps(part, sort_keys=True, separators=(",", ":"))
        entries = [
            entry
            for split in document["splits"].values()
            for shard in split["shards"]
            for entry in shard["files"].values()
        ]
        _check_digest(document["digest"], canonical)
        files = [_entry(entry) for entry in [*entries, *_vocabulary(document)]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{place.uri}/{MANIFEST}: {what}", remedy="prepare and push it again") from error
    return files


def _vocabulary(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of the vocabulary files; schema version 1 has none."""
    if document["schema_version"] == 1:
        return []
    encoding = document["encoding"]
    _check_digest(encoding["digest"], json.dumps(encoding["mapping"], sort_keys=True, separators=(",", ":")))
    return list(encoding["files"].values())


def _check_digest(stated: object, canonical: str) -> None:
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    if stated != digest:
        raise ValueError(f"its digest is {stated!r}, but its contents give {digest!r}")


def _entry(entry: dict[str, Any]) -> StagedFile:
    return StagedFile(name=_safe(entry["path"]), size=int(entry["bytes"]), crc32=int(entry["crc32"], 16))


def _safe(name: str) -> str:
    try:
        return check_name(name)
    except UnsafeNameError as error:
        raise ValueError(f"a file lies outside the dataset's folder: {error.message}") from error


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Hold the folder's lock, so that pods that share a node's disk download the dataset once."""
    descriptor = open_lock(target / _LOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.utime(descriptor)  # when it was last used
        yield
    finally:
        os.close(descriptor)


class _Marks:
    """The record of the files that were checked, so that a later start does not read them again."""

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
        return safe_join(target, file.name).stat().st_size == file.size and marks.has(file)
    except FileNotFoundError:
        return False


def _make_room(target: Path, size: int, say: Callable[[str], None]) -> None:
    """Remove other datasets beside the target, the one staged longest ago first, until there is room.

    They are of earlier runs, on a volume of the node that outlives pods. A run has its node to itself; a
    dataset that another pod is staging is locked, and stays.
    """
    if size * _MARGIN > shutil.disk_usage(target).total:
        return  # no removal would suffice
    others = [each for each in target.parent.iterdir() if each != target and (each / _LOCK).is_file()]
    for other in sorted(others, key=lambda each: (each / _LOCK).stat().st_mtime):
        if size * _MARGIN <= shutil.disk_usage(target).free:
            return
        descriptor = os.open(other / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(other, ignore_errors=True)
            say(f"removed an earlier dataset from this node: {other.name}")
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)


def _check_room(target: Path, size: int, uri: str) -> None:
    free = shutil.disk_usage(target).free
    if size * _MARGIN > free:
        raise PreflightError(
            f"{uri} has {size / 1e9:.2f} GB to download, and {target.parent} has {free / 1e9:.2f} GB free",
            remedy="use nodes with a larger disk, or a dataset_path on a mounted volume",
        )


def _download(
    place: Place, target: Path, files: Sequence[StagedFile], marks: _Marks, say: Callable[[str], None]
) -> None:
    total, done, reported = sum(file.size for file in files), 0, time.monotonic()
    say(f"staging {place.uri}: {len(files)} files, {total / 1e9:.3f} GB")
    started = time.monotonic()
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting = {pool.submit(_fetch, place, target, file, marks): file for file in files}
        try:
            for each in as_completed(waiting):
                each.result()
                done += waiting[each].size
                if time.monotonic() - reported > _SAY_EVERY_S:
                    reported = time.monotonic()
                    say(f"staging: {done / 1e9:.3f} of {total / 1e9:.3f} GB")
        except BaseException:
            # SIGTERM raises an exception here. The rest of the grace is for the uploads, not for downloads.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    seconds = max(time.monotonic() - started, 1e-9)
    rate = total / seconds  # boundary: a division
    say(f"staged {total / 1e9:.3f} GB in {seconds:.1f} s ({rate / 1e6:.0f} MB/s)")


def _fetch(place: Place, target: Path, file: StagedFile, marks: _Marks) -> None:
    path = safe_join(target, file.name)
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
            # Renamed first: a mark without its file would be wrong, a file without a mark is loaded again.
            draft.replace(path)
            marks.add(file)
            return
    draft.unlink(missing_ok=True)
    raise DataError(f"{place.uri}/{file.name}: {problem}", remedy="push it again: `cloudrec data push`")


def _difference(path: Path, file: StagedFile) -> str:
    """Return how a file differs from its entry in dataset.json, or ""."""
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
