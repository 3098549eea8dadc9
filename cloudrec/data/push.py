"""Pushes a prepared dataset to a folder or a bucket; what is there already is not sent again.

`survey` compares, and gives a plan; `carry_out` does it. A reader of the place never sees a dataset.json
whose files are not all there and proven: an older one goes first, the new one comes last.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import stamina

from cloudrec.data import manifest
from cloudrec.data.manifest import ShardFile
from cloudrec.data.places import ArrivedDamagedError, Place, cancel_requests, crc32_of, explain, is_transient
from cloudrec.errors import CloudrecError, DataError, StorageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

_FILES_AT_ONCE = 8
_LOOKS_AT_ONCE = 16
_ENDING_S = 2.0  # that requests have when the push ends early
_AGAIN = "prepare the dataset again, or copy it again from where it was whole"


@dataclass(frozen=True, kw_only=True)
class PushPlan:
    """What a push would do.

    Attributes:
        source: the dataset on this machine.
        uri: where it goes; what `--dataset` of `train` takes then.
        send: files that are not there, or are not what they should be.
        held: files that are there as they should be.
        digest: tells this dataset from others.
        replaces: the digest of another dataset that is there; empty where there is none.
        committed: whether dataset.json of this dataset is there already.
    """

    source: Path
    uri: str
    send: Sequence[ShardFile]
    held: Sequence[ShardFile]
    digest: str
    replaces: str
    committed: bool

    @property
    def bytes(self) -> int:
        """What is to be sent."""
        return sum(file.bytes for file in self.send)

    @property
    def nothing_to_do(self) -> bool:
        """Whether all of it is there."""
        return self.committed and not self.send

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {
            "source": str(self.source),
            "uri": self.uri,
            "digest": self.digest,
            "replaces": self.replaces or None,
            "send": [asdict(file) for file in self.send],
            "send_bytes": self.bytes,
            "held_files": len(self.held),
            "held_bytes": sum(file.bytes for file in self.held),
        }


def survey(source: Path, place: Place) -> PushPlan:
    """Compare a dataset on this machine with what is at a place; sends nothing.

    Raises:
        DataError: it is no prepared dataset, or a file of it is missing or has another size.
        StorageError: the place refuses, or its bucket is not there.
        PreflightError: no credentials.
    """
    content = manifest.load(source)
    files = _files_of(source, content)
    for file in files:
        _check_size(source, file)
    with _told(place):
        place.reach()
        digest = _digest_at(place)
        with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="look") as threads:
            held = list(
                threads.map(lambda file: _patiently(place, place.holds, file, source / file.path), files)
            )
    return PushPlan(
        source=source,
        uri=place.uri,
        send=[file for file, there in zip(files, held, strict=True) if not there],
        held=[file for file, there in zip(files, held, strict=True) if there],
        digest=content["digest"],
        replaces=digest if digest not in {"", content["digest"]} else "",
        committed=digest == content["digest"],
    )


def carry_out(
    plan: PushPlan, place: Place, *, overwrite: bool = False, progress: Callable[[int, int | None], None]
) -> None:
    """Send what the plan says, then dataset.json; whatever ends it early, running it again goes on.

    Args:
        plan: what `survey` found.
        place: where it goes.
        overwrite: replace another dataset that is there.
        progress: is told of bytes done and of all that are to be sent.

    Raises:
        UsageError: another dataset is there.
        DataError: a file is not what dataset.json says.
        StorageError: the place refuses, or what arrives is damaged again and again.
    """
    if plan.replaces and not overwrite:
        raise UsageError(
            f"{plan.uri} holds another dataset: its digest is {plan.replaces[:12]}, not {plan.digest[:12]}",
            remedy="push to another URI or --name, or replace it with --overwrite",
        )
    if plan.nothing_to_do:
        return
    with _told(place):
        if plan.replaces or (plan.committed and plan.send):
            place.remove(manifest.NAME)
        _send_all(plan, place, _Counter(plan.bytes, progress))
        _patiently(place, place.write, manifest.NAME, (plan.source / manifest.NAME).read_bytes())


def _send_all(plan: PushPlan, place: Place, counter: _Counter) -> None:
    """Send files in parallel; the first failure, or Ctrl-C, ends it once what is under way has ended."""
    threads = ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="push")
    largest_first = sorted(plan.send, key=lambda file: -file.bytes)  # none is left alone at the end
    futures = [threads.submit(_send, plan.source, place, file, counter) for file in largest_first]
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
    finally:
        counter.stop()
        threads.shutdown(wait=False, cancel_futures=True)
        if wait([future for future in futures if not future.cancelled()], timeout=_ENDING_S).not_done:
            cancel_requests()  # a store that does not answer would hold up the end for minutes
        threads.shutdown(wait=True)


def _send(source: Path, place: Place, file: ShardFile, counter: _Counter) -> None:
    counter.check()
    local = source / file.path
    crc = crc32_of(local)
    if crc != file.crc32:
        raise DataError(f"{local} is damaged: its crc32 is {crc}, not {file.crc32}", remedy=_AGAIN)

    def attempt() -> None:
        told = counter.of_file()
        try:
            place.put(file, local, told.add)
            told.complete(file.bytes)
        except BaseException:
            told.take_back()
            raise

    try:
        _patiently(place, attempt, unless=counter.is_stopped)
    except ArrivedDamagedError as error:
        raise StorageError(error.message, remedy="see whether something on the way changes data") from error


def _patiently(
    place: Place,
    action: Callable[..., Any],
    *arguments: object,
    unless: Callable[[], bool] = lambda: False,
) -> Any:  # noqa: ANN401 - the action's
    """Do it again where what failed may pass, unless told not to."""
    again = stamina.RetryingCaller(attempts=4, timeout=120.0, wait_initial=0.5, wait_max=15.0)
    return again.on(lambda error: not unless() and is_transient(place, error))(action, *arguments)


class _Stopped(Exception):  # noqa: N818 - no error: something else ended the push
    """This file is not sent any more."""


class _Counter:
    """Counts bytes over all threads, and tells them to stop."""

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
    """What one attempt at one file has sent, so that a failed one does not count."""

    def __init__(self, counter: _Counter) -> None:
        self._counter = counter
        self._sent = 0

    def add(self, count: int) -> None:
        self._counter.check()
        self._sent += count
        self._counter.add(count)

    def complete(self, size: int) -> None:
        self._counter.add(size - self._sent)  # some stores tell of their last part too late, or not

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
        if ".." in (path := PurePosixPath(file.path)).parts or path.is_absolute():
            raise DataError(f"{source / manifest.NAME} names {file.path}, outside the dataset", remedy=_AGAIN)
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


def _digest_at(place: Place) -> str:
    """Return the digest of the dataset that is there; empty where there is none that can be read."""
    found = _patiently(place, place.read, manifest.NAME)
    if found is None:
        return ""
    try:
        return str(json.loads(found)["digest"])
    except (ValueError, KeyError, TypeError):
        return "unreadable"


@contextmanager
def _told(place: Place) -> Iterator[None]:
    """Say what a store's refusals mean."""
    try:
        yield
    except CloudrecError:
        raise
    except Exception as error:
        raise explain(place, error) from error
