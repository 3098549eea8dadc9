"""Uploads of prepared datasets to a folder or a bucket; files that are there already are not sent again.

`survey` compares both and returns a plan; `carry_out` executes it. A reader never sees a dataset.json with
missing or unverified files: an older dataset.json is removed first, and the new one is written last.
"""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import stamina

from cloudrec.data.format import encoding as encodings
from cloudrec.data.format import manifest
from cloudrec.data.format.manifest import ShardFile
from cloudrec.data.stores import explained, read
from cloudrec.errors import DataError, StorageError, UsageError
from cloudrec_contract.objectstore.base import UploadFile, crc32_of
from cloudrec_contract.objectstore.errors import DamagedUploadError, ObjectStoreError
from cloudrec_contract.objectstore.retries import cancel_requests
from cloudrec_contract.objectstore.schemes import is_remote, scheme_of, shared_schemes
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cloudrec_contract.objectstore.base import ObjectStore

_FILES_AT_ONCE = 8
_LOOKS_AT_ONCE = 16
_ENDING_S = 2.0  # for requests in progress to end when the push ends early
_ELSEWHERE = "push to another URI or --name, or replace it with --overwrite"
_AGAIN = "prepare the dataset again, or copy it again from where it was whole"


@dataclass(frozen=True, kw_only=True)
class PushPlan:
    """The changes that a push would make.

    Attributes:
        source: the dataset on this machine.
        uri: the target.
        send: files that are missing or different in the target.
        held: files that are already in the target.
        digest: the digest of this dataset.
        encoding: the digest of its encoding; empty if it is unknown (schema version 1).
        replaces: the digest of another dataset in the target; empty if there is none.
        replaces_encoding: the digest of the target's encoding if its rows are the same but its encoding
            differs; otherwise empty.
        is_there: whether the target has a dataset.json of this dataset, perhaps of an older schema version.
        committed: whether that dataset.json needs no change.
    """

    source: Path
    uri: str
    send: Sequence[ShardFile]
    held: Sequence[ShardFile]
    digest: str
    encoding: str
    replaces: str
    replaces_encoding: str
    is_there: bool
    committed: bool

    @property
    def bytes(self) -> int:
        """The bytes to send."""
        return sum(file.bytes for file in self.send)

    @property
    def dataset(self) -> str:
        """The value of `--dataset` for `train`: the folder on the cluster if only we can use the URI."""
        if is_remote(self.uri) and scheme_of(self.uri) not in shared_schemes():
            return f"file://{urlsplit(self.uri).path}"
        return self.uri

    @property
    def nothing_to_do(self) -> bool:
        """Whether the target already has the whole dataset."""
        return self.committed and not self.send

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {
            "source": str(self.source),
            "uri": self.uri,
            "digest": self.digest,
            "encoding_digest": self.encoding or None,
            "replaces": self.replaces or None,
            "replaces_encoding": self.replaces_encoding or None,
            "send": [asdict(file) for file in self.send],
            "send_bytes": self.bytes,
            "held_files": len(self.held),
            "held_bytes": sum(file.bytes for file in self.held),
        }


def survey(source: Path, store: ObjectStore) -> PushPlan:
    """Compare a dataset on this machine with a store; sends nothing.

    Raises:
        DataError: `source` is not a prepared dataset, or one of its files is missing or has another size.
        StorageError: the store refuses, or its bucket does not exist.
        PreflightError: there are no credentials.
    """
    content = manifest.load(source)
    encoding = encodings.of_dataset(content, source / manifest.NAME)
    files = _files_of(source, content) + ([] if encoding is None else encoding.files)
    for file in files:
        _check_size(source, file)
    with explained(store):
        store.check()
        found = _find_in(store)
        with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="look") as threads:
            held = list(threads.map(lambda file: store.holds(file.path, upload_of(source, file)), files))
    local = _Found(content["digest"], "" if encoding is None else encoding.digest)
    is_there = found is not None and found.digest == local.digest
    return PushPlan(
        source=source,
        uri=store.uri,
        send=[file for file, there in zip(files, held, strict=True) if not there],
        held=[file for file, there in zip(files, held, strict=True) if there],
        digest=local.digest,
        encoding=local.encoding,
        replaces="" if found is None or is_there else found.digest,
        replaces_encoding=""
        if found is None or not is_there or found.encoding == local.encoding
        else found.encoding,
        is_there=is_there,
        committed=found == local,
    )


def carry_out(
    plan: PushPlan,
    store: ObjectStore,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int | None], None],
) -> None:
    """Send the files of a plan, then dataset.json; after an early end, another push continues.

    Args:
        plan: the result of `survey`.
        store: the target.
        overwrite: replace another dataset in the target.
        progress: called with the bytes sent so far and the total.

    Raises:
        UsageError: the target has another dataset, and `overwrite` is off.
        DataError: a local file differs from its checksum in dataset.json.
        StorageError: the store refuses, or uploads arrive damaged repeatedly.
    """
    if plan.replaces and not overwrite:
        raise UsageError(
            f"{plan.uri} holds another dataset: its digest is {plan.replaces[:12]}, not {plan.digest[:12]}",
            remedy=_ELSEWHERE,
        )
    if plan.replaces_encoding and not overwrite:
        raise UsageError(
            f"{plan.uri} holds this dataset with another encoding: its encoding's digest is "
            f"{plan.replaces_encoding[:12]}, not {plan.encoding[:12] or 'unknown'}",
            remedy=_ELSEWHERE,
        )
    if plan.nothing_to_do:
        return
    with explained(store):
        if plan.replaces or plan.replaces_encoding or (plan.is_there and plan.send):
            store.remove([manifest.NAME])
        _send_all(plan, store, _Counter(plan.bytes, progress))
        store.put(manifest.NAME, (plan.source / manifest.NAME).read_bytes())


def _send_all(plan: PushPlan, store: ObjectStore, counter: _Counter) -> None:
    """Send files in parallel; the first failure, or Ctrl-C, ends the push after the requests in progress."""
    threads = ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="push")
    # The largest first, so that no large file is sent alone at the end.
    largest_first = sorted(plan.send, key=lambda file: -file.bytes)
    futures = [threads.submit(_send, plan.source, store, file, counter) for file in largest_first]
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
    finally:
        counter.stop()
        threads.shutdown(wait=False, cancel_futures=True)
        if wait([future for future in futures if not future.cancelled()], timeout=_ENDING_S).not_done:
            cancel_requests()  # otherwise a store that does not answer would delay the end for minutes
        threads.shutdown(wait=True)


def _send(source: Path, store: ObjectStore, file: ShardFile, counter: _Counter) -> None:
    counter.check()
    local = source / file.path
    crc = crc32_of(local)
    if crc != file.crc32:
        raise DataError(f"{local} is damaged: its crc32 is {crc}, not {file.crc32}", remedy=_AGAIN)

    def attempt() -> None:
        sent = counter.of_file()
        try:
            store.upload(file.path, upload_of(source, file), sent.add)
            sent.complete(file.bytes)
        except BaseException:
            sent.take_back()
            raise

    try:
        again = stamina.RetryingCaller(attempts=4, timeout=120.0, wait_initial=0.5, wait_max=15.0)
        again.on(lambda error: _may_pass(error) and not counter.is_stopped())(attempt)
    except DamagedUploadError as error:
        raise StorageError(str(error), remedy="see whether something on the way changes data") from error


def _may_pass(error: Exception) -> bool:
    return isinstance(error, ObjectStoreError) and error.may_pass


def upload_of(source: Path, file: ShardFile) -> UploadFile:
    """Return a dataset's file for `ObjectStore.upload`."""
    return UploadFile(path=source / file.path, size=file.bytes, crc32=file.crc32)


class _Stopped(Exception):  # noqa: N818 - not an error: another file's failure ended the push
    """The push has ended, so this file is not sent."""


class _Counter:
    """Counts the bytes of all threads, and stops the threads at the next part."""

    def __init__(self, total: int, progress: Callable[[int, int | None], None]) -> None:
        self._total = total
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def check(self) -> None:
        if self.is_stopped():
            raise _Stopped

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            self._progress(self._done, self._total)

    def of_file(self) -> _OfFile:
        return _OfFile(self)


class _OfFile:
    """The bytes that one attempt for one file has sent, so that those of a failed attempt are subtracted."""

    def __init__(self, counter: _Counter) -> None:
        self._counter = counter
        self._sent = 0

    def add(self, count: int) -> None:
        self._counter.check()
        self._sent += count
        self._counter.add(count)

    def complete(self, size: int) -> None:
        self._counter.add(size - self._sent)  # some clients do not report the last part

    def take_back(self) -> None:
        self._counter.add(-self._sent)


def _files_of(source: Path, content: Mapping[str, Any]) -> list[ShardFile]:
    try:
        files = [
            ShardFile(path=file["path"], bytes=int(file["bytes"]), crc32=f"{int(file['crc32'], 16):08x}")
            for split in content["splits"].values()
            for shard in split["shards"]
            for file in shard["files"].values()
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # signed, and yet not of this schema
        raise DataError(f"{source / manifest.NAME} is malformed: {error!r}", remedy=_AGAIN) from error
    for file in files:
        manifest.file_in(source, file.path)
    return files


def _check_size(source: Path, file: ShardFile) -> None:
    path = source / file.path
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise DataError(f"{path} is missing", remedy=_AGAIN) from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if size != file.bytes:
        raise DataError(f"{path} has {size:,} bytes, not {file.bytes:,}", remedy=_AGAIN)


class _Found(NamedTuple):
    """The digests of the dataset in a store."""

    digest: str
    encoding: str  # empty if it is unknown (schema version 1)


def _find_in(store: ObjectStore) -> _Found | None:
    """Return the digests of the dataset in a store; None if there is none."""
    found = read(store, manifest.NAME)
    if found is None:
        return None
    try:
        document = safe_object(found)
        encoding = document["encoding"].get("digest", "") if "encoding" in document else ""
        return _Found(str(document["digest"]), str(encoding))
    except (ValueError, KeyError, TypeError, AttributeError):
        return _Found("unreadable", "")
