"""The folder in the cluster's storage that holds a run's files: a directory, or a prefix in a bucket."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from cloudrec.errors import DataError, MissingExtraError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    T = TypeVar("T")

_EXTRAS = {"s3": "aws", "abfs": "azure", "abfss": "azure", "az": "azure", "gs": "gcp", "gcs": "gcp"}
_NEEDS = {"aws": "s3fs", "azure": "adlfs", "gcp": "gcsfs"}
_TRIES = 4


class Place(Protocol):
    """Files below one URI, by names joined with '/'; what the store refuses is a StorageError."""

    uri: str

    def read(self, name: str, *, start: int = 0, limit: int | None = None) -> bytes | None:
        """Return a file's bytes from `start` on, `limit` of them at most; None where there is none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Replace a file, whole or not at all."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that is not there yet; False when it is."""
        ...

    def fetch(self, name: str, target: Path) -> None:
        """Copy a file to this machine; FileNotFoundError when it is not there."""
        ...

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of every file below a folder, by name; none where there is no such folder."""
        ...

    def children(self, prefix: str) -> dict[str, int]:
        """Return what is directly in a folder: bytes of each file, -1 for each folder, by its own name."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...


def is_remote(uri: str) -> bool:
    """Tell whether a URI names an object store rather than a path of this machine."""
    scheme, separator, _ = uri.partition("://")
    return bool(separator) and scheme.lower() != "file"


def open_place(uri: str, environment: Mapping[str, str] | None = None) -> Place:
    """Return what a path or URI names; nothing is asked before it is used.

    Args:
        uri: the path or URI.
        environment: variables that tell where the store is, where this process's own do not.

    Raises:
        DataError: no object store of this scheme is known.
        MissingExtraError: its client is not installed.
    """
    if uri.startswith("ssh://"):
        from cloudrec.launch._slurm.place import SshPlace  # noqa: PLC0415 - only where a login node is used

        return SshPlace(uri, environment or {})
    if is_remote(uri):
        return _Bucket(uri, environment or {})
    if not uri.lower().startswith("file://"):
        return _Directory(uri, Path(uri))
    return _Directory(uri, Path(unquote(urlsplit(uri).path)))


class _Directory:
    def __init__(self, uri: str, root: Path) -> None:
        self.uri = uri
        self._root = root

    def read(self, name: str, *, start: int = 0, limit: int | None = None) -> bytes | None:
        def act() -> bytes:
            with (self._root / name).open("rb") as file:
                file.seek(start)
                return file.read(-1 if limit is None else limit)

        try:
            return self._told(name, act)
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        try:
            self._told(name, lambda: self._write(self._root / name, data, replace=True))
        except FileNotFoundError as error:
            raise StorageError(f"{self.uri}: there is no such folder, and it cannot be made") from error

    def create(self, name: str, data: bytes) -> bool:
        try:
            self._told(name, lambda: self._write(self._root / name, data, replace=False))
        except FileExistsError:
            return False
        except FileNotFoundError as error:
            raise StorageError(f"{self.uri}: there is no such folder, and it cannot be made") from error
        return True

    def fetch(self, name: str, target: Path) -> None:
        self._told(name, lambda: shutil.copyfile(self._root / name, target))

    def sizes(self, prefix: str) -> dict[str, int]:
        found = {}
        for path in (self._root / prefix).rglob("*"):
            with suppress(FileNotFoundError):
                if path.is_file() and not path.name.startswith("."):
                    found[path.relative_to(self._root).as_posix()] = path.stat().st_size
        return dict(sorted(found.items()))

    def children(self, prefix: str) -> dict[str, int]:
        found = {}
        with suppress(FileNotFoundError, NotADirectoryError):
            for path in sorted((self._root / prefix).iterdir()):
                with suppress(FileNotFoundError):
                    if not path.name.startswith("."):
                        found[path.name] = path.stat().st_size if path.is_file() else -1
        return found

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._told(name, (self._root / name).unlink)

    def _write(self, path: Path, data: bytes, *, replace: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            draft.write_bytes(data)
            if replace:
                draft.replace(path)
            else:
                os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)

    def _told(self, name: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            raise StorageError(f"{self.uri}/{name}: {error.strerror or error}") from error


class _Bucket:
    def __init__(self, uri: str, environment: Mapping[str, str]) -> None:
        self.uri = uri.rstrip("/")
        self._files, self._root = _connect(self.uri, environment)

    def read(self, name: str, *, start: int = 0, limit: int | None = None) -> bytes | None:
        end = {} if limit is None else {"end": start + limit}
        options = {"start": start, **end} if start or end else {}
        try:
            return bytes(self._told(name, lambda: self._files.cat_file(self._path(name), **options)))
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        try:
            self._told(name, lambda: self._files.pipe_file(self._path(name), data))
        except FileNotFoundError as error:
            raise StorageError(f"{self.uri}: its bucket is not there") from error

    def create(self, name: str, data: bytes) -> bool:
        try:
            self._told(name, lambda: self._files.pipe_file(self._path(name), data, mode="create"))
        except FileExistsError:
            return self.read(name) == data  # an attempt whose answer was lost may have been ours
        except FileNotFoundError as error:
            raise StorageError(f"{self.uri}: its bucket is not there") from error
        return True

    def fetch(self, name: str, target: Path) -> None:
        self._told(name, lambda: self._files.get_file(self._path(name), str(target)))

    def sizes(self, prefix: str) -> dict[str, int]:
        folder = f"{self._root}/{prefix}".rstrip("/")
        try:
            found = self._told(prefix, lambda: self._files.find(folder, detail=True))
        except FileNotFoundError:
            return {}
        skip = len(self._root) + 1
        return {path[skip:]: int(info["size"]) for path, info in sorted(dict(found).items())}

    def children(self, prefix: str) -> dict[str, int]:
        folder = f"{self._root}/{prefix}".rstrip("/")
        try:
            found = self._told(prefix, lambda: self._files.ls(folder, detail=True))
        except FileNotFoundError:
            return {}
        return {
            str(info["name"]).rstrip("/").rpartition("/")[2]: int(info["size"] or 0)
            if info["type"] == "file"
            else -1
            for info in found
            if str(info["name"]).rstrip("/") != folder
        }

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._told(name, lambda: self._files.rm_file(self._path(name)))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _told(self, name: str, action: Callable[[], T]) -> T:
        """Act, again where that may help, and turn the clouds' errors into ours."""
        import stamina  # noqa: PLC0415 - only where a bucket is used

        attempts = stamina.RetryingCaller(attempts=_TRIES, timeout=60.0, wait_initial=0.5, wait_max=10.0)
        try:
            return attempts.on(_may_pass)(action)
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as error:
            if _status(error) == 412:  # noqa: PLR2004 - precondition failed: it is there
                raise FileExistsError(name) from error
            words = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
            refused = isinstance(error, PermissionError) or _status(error) in (401, 403)
            remedy = (
                "give the pods' service account the permission to list, read, write and delete objects there"
                if refused
                else "see whether the pods' network lets them reach it"
            )
            raise StorageError(f"{self.uri}/{name}: {words}", remedy=remedy) from error


def _may_pass(error: Exception) -> bool:
    if isinstance(error, (FileExistsError, FileNotFoundError, PermissionError)):
        return False
    status = _status(error)
    return status is None or status in (408, 409, 429) or status >= 500  # noqa: PLR2004 - HTTP's own


def _status(error: BaseException) -> int | None:
    """Return the HTTP status that a cloud's error stands for, where it tells."""
    for found in (error, error.__cause__):
        response = getattr(found, "response", None)
        if isinstance(response, dict):  # botocore's
            return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) or None
        for name in ("status_code", "code"):  # azure's, gcsfs's
            value = getattr(found, name, None)
            if isinstance(value, int):
                return value
    return None


def _connect(uri: str, environment: Mapping[str, str]) -> tuple[Any, str]:
    """Return an fsspec file system of its own and the URI's path in it; credentials are the SDK's matter."""
    scheme = uri.partition("://")[0].lower()
    extra = _EXTRAS.get(scheme)
    if extra is None:
        raise DataError(
            f"{uri!r}: the scheme {scheme!r} is not supported",
            remedy=f"use a path, file://, {', '.join(f'{known}://' for known in _EXTRAS)}",
        )
    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if extra == "gcp" and os.environ.get("STORAGE_EMULATOR_HOST"):
        options["token"] = "anon"  # noqa: S105 - the emulator asks for none
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if extra == "aws" and endpoint and not os.environ.get("AWS_ENDPOINT_URL"):
        options["endpoint_url"] = endpoint
    try:
        import fsspec  # noqa: PLC0415 - takes long to import

        files, path = fsspec.core.url_to_fs(uri, **options)
    except ImportError as error:
        raise MissingExtraError(extra, module=error.name or _NEEDS[extra]) from error
    except ValueError as error:
        raise DataError(f"{uri!r}: {error}") from error
    return files, str(path).rstrip("/")
