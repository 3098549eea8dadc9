"""Google Cloud Storage: it works out the crc32c of every object itself, so the answer proves the upload."""

from __future__ import annotations

import base64
import logging
import os
from typing import TYPE_CHECKING

import aiohttp
import google_crc32c
import requests
from fsspec.callbacks import Callback
from gcsfs.core import GCSFileSystem  # the package's own name asks a second API of each bucket
from gcsfs.retry import ChecksumError, HttpError
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError

from cloudrec.data.places import ANSWER_S, ArrivedDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cloudrec.data.manifest import ShardFile

_CHUNK = 16 << 20  # bytes
_PIECE = 1 << 20


def open_place(uri: str) -> Bucket:
    """Return the bucket's folder that a URI names."""
    return Bucket(uri)


class Bucket:
    """See `Place`."""

    def __init__(self, uri: str) -> None:
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it logs a traceback for what we tell in words
        self.uri = uri
        self._path = uri.partition("://")[2]
        self._files = GCSFileSystem(
            token="anon" if os.environ.get("STORAGE_EMULATOR_HOST") else None,
            use_listings_cache=False,
            skip_instance_cache=True,
            requests_timeout=aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_S, sock_read=ANSWER_S),
        )

    def reach(self) -> None:
        """See `Place`."""
        bucket, _, folder = self._path.partition("/")
        self._files.call("GET", "b/{}/o", bucket, prefix=folder, maxResults=1, json_out=True)

    def holds(self, file: ShardFile, local: Path) -> bool:
        """See `Place`."""
        try:
            # gcsfs's `info` asks for a folder of that name too
            found = self._files.call("GET", "b/{}/o/{}", *self._names(file.path), json_out=True)
        except FileNotFoundError:
            return False
        return int(found["size"]) == file.bytes and str(found.get("crc32c")) == _crc32c_of(local)

    def put(self, file: ShardFile, local: Path, sent: Callable[[int], None]) -> None:
        """See `Place`."""
        place = f"{self._path}/{file.path}"
        self._files.put_file(str(local), place, chunksize=_CHUNK, callback=_Told(sent))
        if not self.holds(file, local):
            raise ArrivedDamagedError(f"{self.uri}/{file.path}: what arrived is not what was sent")

    def read(self, name: str) -> bytes | None:
        """See `Place`."""
        try:
            return bytes(self._files.cat_file(f"{self._path}/{name}"))
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """See `Place`."""
        self._files.pipe_file(f"{self._path}/{name}", data)

    def remove(self, name: str) -> None:
        """See `Place`."""
        self._files.rm_file(f"{self._path}/{name}")

    def status(self, error: BaseException) -> int | None:
        """See `Place`."""
        if isinstance(error, HttpError) and error.code is not None:
            return int(error.code)
        if isinstance(error, (DefaultCredentialsError, RefreshError)):
            return 401
        if isinstance(error, requests.exceptions.ProxyError):  # gcsfs's word for 502
            return 502
        return 403 if isinstance(error, OSError) and str(error).startswith("Forbidden") else None

    def is_unanswered(self, error: BaseException) -> bool:
        """See `Place`."""
        lost = (aiohttp.ClientError, ChecksumError, TransportError, TimeoutError, ConnectionError)
        return isinstance(error, lost)

    def _names(self, name: str) -> tuple[str, str]:
        bucket, _, key = f"{self._path}/{name}".partition("/")
        return bucket, key


class _Told(Callback):  # type: ignore[misc]  # fsspec has no types
    """Passes on what a chunk added, which gcsfs tells as what there is in all."""

    def __init__(self, sent: Callable[[int], None]) -> None:
        super().__init__()
        self._sent = sent
        self._so_far = 0

    def absolute_update(self, value: int) -> None:
        if value > self._so_far:
            self._sent(value - self._so_far)
            self._so_far = value


def _crc32c_of(path: Path) -> str:
    """Return a file's crc32c as the service writes it."""
    crc = 0
    with path.open("rb") as stream:
        while block := stream.read(_PIECE):
            crc = google_crc32c.extend(crc, block)
    return base64.b64encode(crc.to_bytes(4, "big")).decode()
