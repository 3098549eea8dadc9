"""Google Cloud Storage; STORAGE_EMULATOR_HOST names another service with its API.

The service computes the crc32c of every object itself, so its value verifies an upload.
"""

from __future__ import annotations

import base64
import logging
import os
from typing import TYPE_CHECKING, Any

import aiohttp
import google_crc32c
import requests
from gcsfs.core import GCSFileSystem  # gcsfs.GCSFileSystem would also query a second API for each bucket
from gcsfs.retry import ChecksumError, HttpError, is_retriable
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError

from cloudrec_contract.objectstore.bucket import MARK, BucketStore, UploadProgress
from cloudrec_contract.objectstore.retries import repeat_request
from cloudrec_contract.objectstore.schemes import path_in_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cloudrec_contract.objectstore.base import StoreOptions, UploadFile
    from cloudrec_contract.objectstore.retries import Patience

_CHUNK_BYTES = 16 * 2**20  # of an upload
_PIECE_BYTES = 2**20


def open_store(uri: str, options: StoreOptions) -> GcsStore:
    """Return the bucket's folder that a URI names."""
    return GcsStore(uri, options)


class GcsStore(BucketStore):
    """See `ObjectStore`."""

    def __init__(self, uri: str, options: StoreOptions) -> None:
        path = path_in_bucket(uri)
        # gcsfs also logs a traceback for every error that it raises.
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        super().__init__(uri, _Files(options.patience), path, options)

    def status(self, error: BaseException) -> int | None:
        """See `BucketStore`."""
        if isinstance(error, HttpError) and error.code is not None:
            return int(error.code)
        if isinstance(error, (DefaultCredentialsError, RefreshError)):
            return 401
        if isinstance(error, requests.exceptions.ProxyError):  # raised by gcsfs for a status of 502
            return 502
        return 403 if isinstance(error, OSError) and str(error).startswith("Forbidden") else None

    def is_unanswered(self, error: BaseException) -> bool:
        """See `BucketStore`."""
        return _is_unanswered(error)

    def _ask_for_bucket(self) -> None:
        folder = self._folder.rstrip("/")
        self._files.call("GET", "b/{}/o", self._bucket, prefix=folder, maxResults=1, json_out=True)

    def _is_there(self, name: str, file: UploadFile) -> bool:
        # Not gcsfs's `info`, which makes a second request for a folder of that name.
        bucket, _, key = self._path(name).partition("/")
        found = self._files.call("GET", "b/{}/o/{}", bucket, key, json_out=True)
        return int(found["size"]) == file.size and str(found.get("crc32c")) == _crc32c_of(file.path)

    def _send(self, name: str, file: UploadFile, sent: Callable[[int], None]) -> None:
        path = self._path(name)
        self._files.put_file(str(file.path), path, chunksize=_CHUNK_BYTES, callback=UploadProgress(sent))

    def _marked(self, mark: str) -> Mapping[str, Any]:
        return {"metadata": {MARK: mark}}

    def _mark_of(self, path: str) -> str | None:
        found: Mapping[str, str] = self._files.info(path).get("metadata") or {}
        return found.get(MARK)


class _Files(GCSFileSystem):  # type: ignore[misc]  # gcsfs has no types
    """A file system that retries requests soon, and also after a time-out; gcsfs does neither."""

    cachable = False

    def __init__(self, patience: Patience) -> None:
        super().__init__(
            use_listings_cache=False,
            token="anon" if os.environ.get("STORAGE_EMULATOR_HOST") else None,
            requests_timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=patience.answer_s, sock_read=patience.answer_s
            ),
        )
        self._patience = patience

    async def _request(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - gcsfs's own
        once = GCSFileSystem._request.__wrapped__  # noqa: SLF001 - without gcsfs's way to repeat it
        return await repeat_request(lambda: once(self, *args, **options), self._patience, _may_pass)


def _is_unanswered(error: BaseException) -> bool:
    lost = (aiohttp.ClientError, ChecksumError, TransportError, TimeoutError, ConnectionError)
    return isinstance(error, lost)


def _may_pass(error: Exception) -> bool:
    return is_retriable(error) or _is_unanswered(error)


def _crc32c_of(path: Path) -> str:
    """Return a file's crc32c in the service's format (base64)."""
    crc = 0
    with path.open("rb") as stream:
        while block := stream.read(_PIECE_BYTES):
            crc = google_crc32c.extend(crc, block)
    return base64.b64encode(crc.to_bytes(4, "big")).decode()
