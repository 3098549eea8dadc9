"""A store in a folder of a login node, with standard Linux programs; CLOUDREC_SSH_CONFIG configures ssh.

ROOT/step-00000010/commit.json     an object
ROOT/step-00000010/.part-TOKEN     a file that is being written, or was when its connection ended
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import uuid
import zlib
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast
from urllib.parse import unquote

from cloudrec_contract.objectstore.base import check_name
from cloudrec_contract.objectstore.errors import (
    DamagedUploadError,
    FileSystemError,
    NoObjectError,
    ObjectExistsError,
    ObjectStoreError,
    StoreUriError,
)
from cloudrec_contract.objectstore.retries import repeat, repeat_call
from cloudrec_contract.objectstore.ssh import KIND
from cloudrec_contract.objectstore.ssh.shell import CONFIG, LoginNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from cloudrec_contract.objectstore.base import StoreOptions, UploadFile

T = TypeVar("T")
_PIECE_BYTES = 8 * 2**20
_SLOWEST = 10 * 2**20  # bytes per second at which the login node writes or sums a file without any output
_NAMES_BYTES = 64 * 2**10  # of names in one command: Linux limits an argument to 128 KiB
_WORDS = 300  # characters of a program's message

# A script is one line without `!`: the login shell that passes it on may be csh. Its own exit codes are 44 if
# the object is missing, 45 if it exists, 46 if other bytes arrived than were sent.
_CHECK = '[ -d "$1" ] || { [ -e "$1" ] || exit 0; echo "is no folder" >&2; exit 1; }'
_READ = (
    '[ -d "$1" ] && { echo "is a folder" >&2; exit 1; }; '
    '{ if [ "$3" ]; then tail -c "+$2" <&3 | head -c "$3"; else tail -c "+$2" <&3; fi; } 3<"$1" '
    '|| { [ -e "$1" ] || exit 44; exit 1; }'
)
# $1 target, $2 token, $3 bytes, $4 sha256 or nothing, then every folder from the root to the target's.
# `cat` cannot distinguish a lost connection from the end of the file, so the bytes are counted.
_SAVE = (
    'target="$1"; draft="${1%/*}/.part-$2"; size="$3"; sum="$4"; shift 4; '
    'begin() { mkdir -p -- "${draft%/*}" && true >"$draft"; }; '
    # another writer may remove an empty folder at any time
    "for again in 1 2 3 4 5; do begin 2>/dev/null && break; done; "
    '[ -e "$draft" ] || begin || exit 1; '
    "trap 'rm -f -- \"$draft\"' EXIT; "
    'cat >"$draft" || exit 1; '
    '[ "$(wc -c <"$draft")" -eq "$size" ] || exit 46; '
    '[ -z "$sum" ] || [ "$(sha256sum <"$draft")" = "$sum  -" ] || exit 46; '
    'sync -- "$draft" || exit 1; '
)
_PUT = _SAVE + 'mv -fT -- "$draft" "$target" && sync -- "$@"'
# `ln` refuses a name that exists.
_CREATE = _SAVE + 'ln -T -- "$draft" "$target" || { [ -e "$target" ] && exit 45; exit 1; }; sync -- "$@"'
_SUM = '[ -f "$1" ] && [ "$(wc -c <"$1")" -eq "$2" ] || exit 44; sha256sum <"$1"'
_SEEN = "-ignore_readdir_race -mindepth 1"
_FILES = f'[ -d "$1" ] || exit 0; exec find -L "$1" {_SEEN} -name ".*" -prune -o -type f -printf "f %s %P\\0"'
_CHILDREN = (
    f'[ -d "$1" ] || exit 0; exec find -L "$1" {_SEEN} -maxdepth 1 -name ".*" -prune -o -printf "%y %s %P\\0"'
)
_TIDY = (
    '[ -d "$1" ] || exit 0; exec find "$1/" -ignore_readdir_race -type f -name ".part-*" -exec rm -f -- {} +'
)


def open_store(uri: str, options: StoreOptions) -> SshStore:
    """Return the folder of a login node that a URI names."""
    return SshStore(uri, options)


class SshStore:
    """Objects as files; see `ObjectStore` for the guarantees.

    Args:
        uri: ssh://USER@HOST/FOLDER.
        options: CLOUDREC_SSH_CONFIG in `environment` names ssh's configuration file; without it, this
            process's variable does. A request that does not reach the login node is repeated, but not after
            `patience.answer_s`: a person waits, whose network may be down.

    Raises:
        StoreUriError: the URI names no host, or no folder.
    """

    def __init__(self, uri: str, options: StoreOptions) -> None:
        host, _, path = uri.partition("://")[2].partition("/")
        folder = unquote(path).strip("/")
        if not host or not folder:
            raise StoreUriError(f"names no folder of a login node; it is {KIND.example}")
        self.uri = uri.rstrip("/")
        self._root = PurePosixPath("/") / folder
        self._patience = options.patience
        # The run's own first: its programs are run with the same.
        config = options.environment.get(CONFIG) or os.environ.get(CONFIG, "")
        self._node = LoginNode(host=host, config=config)

    def check(self) -> None:
        """See `ObjectStore`."""
        self._output("", _CHECK, str(self._root))

    def create(self, name: str, data: bytes) -> None:
        """See `ObjectStore`."""
        try:
            with self._spooled(name, data) as file:
                self._save(name, _CREATE, file, len(data))
        except ObjectExistsError:
            # A retry after a lost response finds the object of the first attempt: then the bytes are equal.
            if self.read(name) != data:
                raise

    def put(self, name: str, data: bytes) -> None:
        """See `ObjectStore`."""
        with self._spooled(name, data) as file:
            self._save(name, _PUT, file, len(data))

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """See `ObjectStore`; the object is kept on this machine's disk until it is sent."""
        check_name(name)
        with self._spooled(name) as file:
            yield file
            size = file.seek(0, os.SEEK_END)
            self._save(name, _PUT, file, size)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """See `ObjectStore`."""
        words = [self._path(name), str(start + 1), "" if length is None else str(length)]
        return self._output(name, _READ, *words)

    def download(self, name: str, target: Path) -> None:
        """See `ObjectStore`."""
        words = [self._path(name), "1", ""]
        draft = target.with_name(f".{target.name}.part-{uuid.uuid4().hex}")
        with _translated(target):
            try:
                with draft.open("w+b") as file:
                    self._fill(file, name, _READ, *words)
                draft.replace(target)
            finally:
                draft.unlink(missing_ok=True)

    def upload(self, name: str, file: UploadFile, sent: Callable[[int], None]) -> None:
        """See `ObjectStore`; the login node checks the copy's sha256 before the rename."""
        words = self._words(name)
        with _translated(file.path), file.path.open("rb", buffering=0) as source:
            crc32, sha256 = _sums(source)
            if crc32 != file.crc32:
                raise DamagedUploadError(self._where(name), "what is sent is not that file", may_pass=True)
            source.seek(0)
            words += [str(file.size), sha256, *self._folders(name)]
            self._once(name, _PUT, *words, source=source, sent=sent)

    def holds(self, name: str, file: UploadFile) -> bool:
        """See `ObjectStore`."""
        try:
            found = self._output(name, _SUM, self._path(name), str(file.size), size=file.size)
        except NoObjectError:
            return False
        with _translated(file.path), file.path.open("rb") as source:
            crc32, sha256 = _sums(source)
        return crc32 == file.crc32 and found.split()[0].decode() == sha256

    def local_file(self, name: str) -> Path | None:
        """See `ObjectStore`: there is none."""
        check_name(name)
        return None

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """See `ObjectStore`."""
        folder = prefix.rpartition("/")[0]
        before = f"{folder}/" if folder else ""
        found = {f"{before}{name}": size for name, _, size in self._find(_FILES, folder)}
        return {name: found[name] for name in sorted(found) if name.startswith(prefix)}

    def children(self, folder: str = "") -> dict[str, int]:
        """See `ObjectStore`."""
        found = {name: -1 if kind == "d" else size for name, kind, size in self._find(_CHILDREN, folder)}
        return dict(sorted(found.items()))

    def remove(self, names: Iterable[str]) -> None:
        """See `ObjectStore`; folders stay."""
        for words in _in_lines(map(self._path, names)):
            self._output("", 'exec rm -f -- "$@"', *words)

    def tidy(self) -> None:
        """See `ObjectStore`."""
        self._output("", _TIDY, str(self._root))

    def _path(self, name: str) -> str:
        return str(self._root / check_name(name))

    def _where(self, name: str) -> str:
        return f"{self.uri}/{name}" if name else self.uri

    def _folders(self, name: str) -> list[str]:
        """Return every folder that an object's name is in, from the root on."""
        return [str(self._root / each) for each in reversed(PurePosixPath(name).parents)]

    def _words(self, name: str) -> list[str]:
        return [self._path(name), uuid.uuid4().hex]

    def _save(self, name: str, script: str, file: BinaryIO, size: int) -> None:
        file.flush()

        def attempt() -> None:
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            self._once(name, script, *self._words(name), str(size), "", *self._folders(name), source=file)

        self._repeat(attempt)

    def _find(self, script: str, folder: str) -> Iterator[tuple[str, str, int]]:
        """Yield the name below a folder, the kind and the size of each file and folder that is found."""
        found = self._output(folder, script, str(self._root / folder))
        for line in found.split(b"\0")[:-1]:
            kind, size, name = line.split(b" ", 2)
            if kind in {b"f", b"d"}:
                yield os.fsdecode(name), kind.decode(), int(size)

    def _output(self, name: str, script: str, *words: str, size: int = 0) -> bytes:
        with _translated(tempfile.gettempdir()), tempfile.TemporaryFile() as file:
            self._fill(file, name, script, *words, size=size)
            file.seek(0)
            return file.read()

    def _fill(self, file: BinaryIO, name: str, script: str, *words: str, size: int = 0) -> None:
        """Write a script's output to a file of this machine."""

        def attempt() -> None:
            file.seek(0)
            file.truncate()
            self._once(name, script, *words, target=file, size=size)

        self._repeat(attempt)

    def _repeat(self, attempt: Callable[[], T]) -> T:
        give_up = time.monotonic() + self._patience.answer_s

        def may_pass(error: Exception) -> bool:
            return isinstance(error, ObjectStoreError) and error.may_pass and time.monotonic() < give_up

        return repeat(lambda: repeat_call(attempt, self._patience, may_pass), self._patience, may_pass)

    def _once(
        self,
        name: str,
        script: str,
        *words: str,
        source: BinaryIO | None = None,
        target: BinaryIO | None = None,
        size: int = 0,
        sent: Callable[[int], None] | None = None,
    ) -> None:
        """Run a script on the login node, and turn its exit code into the store's errors."""
        if source is not None:
            size = os.fstat(source.fileno()).st_size
        with tempfile.TemporaryFile() as nothing:
            done = self._node.transfer(
                ["sh", "-c", script, "sh", *words],
                source=source,
                target=target or cast("BinaryIO", nothing),
                idle_s=self._patience.answer_s + size / _SLOWEST,
                sent=sent,
            )
        where = self._where(name)
        match done.code:
            case 0:
                return
            case 44:
                raise NoObjectError(where, "is not there")
            case 45:
                raise ObjectExistsError(where, "is there already, from another writer")
            case 46:
                raise DamagedUploadError(where, "what arrived is not what was sent", may_pass=True)
        message = " ".join(done.err.split())[-_WORDS:] or f"sh ended with {done.code}"
        raise FileSystemError(where, message)

    @contextmanager
    def _spooled(self, name: str, data: bytes = b"") -> Iterator[BinaryIO]:
        """Yield a file of this machine; `name` is checked before."""
        check_name(name)
        with _translated(tempfile.gettempdir()), tempfile.TemporaryFile() as file:
            file.write(data)
            yield cast("BinaryIO", file)


def _sums(file: BinaryIO) -> tuple[str, str]:
    """Return the crc32 and the sha256 of a file in hexadecimal."""
    crc32, sha256 = 0, hashlib.sha256()
    while block := file.read(_PIECE_BYTES):
        crc32 = zlib.crc32(block, crc32)
        sha256.update(block)
    return f"{crc32:08x}", sha256.hexdigest()


def _in_lines(words: Iterable[str]) -> Iterator[list[str]]:
    """Divide words among commands of a limited length."""
    line: list[str] = []
    size = 0
    for word in words:
        length = len(os.fsencode(word)) + 16
        if line and size + length > _NAMES_BYTES:
            yield line
            line, size = [], 0
        line.append(word)
        size += length
    if line:
        yield line


@contextmanager
def _translated(path: Path | str) -> Iterator[None]:
    """Translate errors of this machine's operating system into the store's."""
    try:
        yield
    except OSError as error:
        raise FileSystemError(str(error.filename or path), error.strerror or str(error)) from error
