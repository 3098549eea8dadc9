"""Finding TSV files and cutting them into chunks of whole lines, in bounded memory."""

from __future__ import annotations

import glob
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from isal import igzip

from cloudrec.data.format.fields import LONGEST_LINE, count_lines
from cloudrec.data.format.tsv import COLUMNS, Chunk
from cloudrec.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

CHUNK_BYTES = 4 << 20
SUFFIXES = (".tsv", ".tsv.gz", ".txt", ".txt.gz")


class SourceFile(NamedTuple):
    """One file to read."""

    path: Path
    bytes: int
    split: str | None  # train or test; None: the number of a row decides its split


@dataclass
class SourceProgress:
    """The lines and bytes of a source that have been read."""

    source: SourceFile
    lines: int = 0
    bytes_read: int = 0  # of the file on disk, before decompression


def find_sources(texts: Sequence[str]) -> list[SourceFile]:
    """Return the files that paths or patterns name, in the order of reading.

    Args:
        texts: each is a file, a folder, a folder with train/ and test/ folders, or a glob pattern.

    Raises:
        DataError: there is no such file, it has no TSV file, or it cannot be read.
    """
    return [source for text in texts for source in _found(text)]


def _found(text: str) -> list[SourceFile]:
    path = Path(text).expanduser()
    try:
        if path.is_file():
            return [_source(path, None)]
        if path.is_dir():
            return _in_folder(path)
        if glob.has_magic(text):
            return _matching(str(path))
    except OSError as error:
        raise DataError(f"cannot read {error.filename or path}: {error.strerror}") from error
    raise DataError(
        f"{text} does not exist", remedy="name a file, a folder or a pattern such as 'day_*.tsv.gz'"
    )


def _in_folder(path: Path) -> list[SourceFile]:
    train, test = path / "train", path / "test"
    if train.is_dir():
        sources = [_source(p, "train") for p in _tables(train)]
        if not sources:
            raise _nothing_in(train)
        return sources + ([_source(p, "test") for p in _tables(test)] if test.is_dir() else [])
    sources = [_source(p, None) for p in _tables(path)]
    if not sources:
        raise _nothing_in(path)
    return sources


def _matching(pattern: str) -> list[SourceFile]:
    found = sorted(Path(p) for p in glob.glob(pattern, recursive=True))  # noqa: PTH207 - absolute patterns too
    sources = [_source(p, None) for p in found if p.is_file()]
    if not sources:
        raise DataError(
            f"no file matches {pattern}", remedy="quote the pattern so that the shell leaves it alone"
        )
    return sources


def _tables(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.name.endswith(SUFFIXES) and p.is_file())


def _nothing_in(folder: Path) -> DataError:
    return DataError(
        f"{folder} holds no TSV file", remedy=f"its files' names must end in {', '.join(SUFFIXES)}"
    )


def _source(path: Path, split: str | None) -> SourceFile:
    size = path.stat().st_size
    if size == 0:
        raise DataError(f"{path} is empty", remedy="remove it or replace it by a file with rows")
    if not os.access(path, os.R_OK):
        raise DataError(f"cannot read {path}: permission denied", remedy=f"chmod u+r {path}")
    return SourceFile(path, size, split)


def lack_labels(files: Sequence[SourceFile]) -> bool:
    """Whether the files have one column less than Criteo's, which is the label; by their first lines.

    Raises:
        DataError: only some of them do.
    """
    lacking = [_columns(each) == len(COLUMNS) - 1 for each in files]
    if any(lacking) and not all(lacking):
        first, other = files[lacking.index(True)].path, files[lacking.index(False)].path
        raise DataError(
            f"{first} has no label, and {other} has one",
            remedy="name files that are alike; score those without a label on their own",
        )
    return all(lacking)


def _columns(source: SourceFile) -> int:
    reading = SourceProgress(source)
    for chunk in read_chunks(reading, first_row=0, chunk_bytes=LONGEST_LINE):
        return chunk.text.partition(b"\n")[0].count(b"\t") + 1
    return 0


def read_chunks(
    reading: SourceProgress, *, first_row: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """Yield a file's lines in chunks of about `chunk_bytes`; a thread reads the next chunk meanwhile.

    Raises:
        DataError: the file cannot be read to its end.
    """
    chunks = _read_chunks(reading, first_row, chunk_bytes)
    with ThreadPoolExecutor(1) as ahead:
        try:
            following = ahead.submit(next, chunks, None)
            while (chunk := following.result()) is not None:
                following = ahead.submit(next, chunks, None)
                yield chunk
        finally:
            # In the reading thread: after Ctrl-C, the generator may run there and cannot be closed here.
            ahead.submit(chunks.close)


def _read_chunks(reading: SourceProgress, first_row: int, chunk_bytes: int) -> Generator[Chunk, None, None]:
    path = reading.source.path
    try:
        with _opened(path, reading) as file:
            yield from _cut(file, reading, first_row, chunk_bytes)
    except (EOFError, igzip.BadGzipFile, zlib.error, OSError) as error:
        reason = "it ends in the middle" if isinstance(error, EOFError) else str(error)
        raise DataError(
            f"cannot read {path} beyond line {reading.lines}: {reason}",
            remedy="the file is truncated or damaged: fetch or compress it again",
        ) from error


@contextmanager
def _opened(path: Path, reading: SourceProgress) -> Iterator[IO[bytes] | _Counted]:
    with path.open("rb") as raw:
        counted = _Counted(raw, reading)
        if raw.peek(2)[:2] != b"\x1f\x8b":
            if path.name.endswith(".gz"):
                raise igzip.BadGzipFile("it is not a gzip file")
            yield counted
            return
        with igzip.open(counted, "rb") as file:
            yield file


class _Counted:
    """A file that counts the bytes read from it."""

    def __init__(self, raw: IO[bytes], reading: SourceProgress) -> None:
        self._raw = raw
        self._reading = reading

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read(size)
        self._reading.bytes_read += len(data)
        return data

    def readinto(self, buffer: memoryview) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _cut(
    file: IO[bytes] | _Counted, reading: SourceProgress, first_row: int, chunk_bytes: int
) -> Iterator[Chunk]:
    """Split at newlines. Of a line above the limit, only enough bytes are kept to detect that."""
    rest = b""
    while data := file.read(chunk_bytes):
        end = data.rfind(b"\n") + 1
        if end:
            yield _chunk(b"".join((rest, memoryview(data)[:end])), reading, first_row)
            rest = b""
        rest = (rest + data[end:])[: LONGEST_LINE + 2]  # one more for a carriage return
    if rest:
        yield _chunk(rest + b"\n", reading, first_row)


def _chunk(text: bytes, reading: SourceProgress, first_row: int) -> Chunk:
    lines = count_lines(text)
    chunk = Chunk(text, reading.lines + 1, first_row + reading.lines, lines)
    reading.lines += lines
    return chunk
