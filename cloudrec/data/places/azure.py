"""Azure Blob Storage: the service checks the MD5 of each block as it comes, and keeps the whole blob's."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any

import adlfs  # noqa: TC002 - fsspec finds it by itself, but its absence must be seen here
import fsspec
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    IncompleteReadError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.storage.blob.aio import BlobServiceClient, ExponentialRetry
from fsspec.callbacks import Callback

from cloudrec.data.places import ANSWER_S, ArrivedDamagedError
from cloudrec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cloudrec.data.manifest import ShardFile

_PIECE = 1 << 20
_BLOCK = 8 << 20  # bytes
_BLOCKS_AT_ONCE = 2  # of a file


def open_place(uri: str) -> Container:
    """Return the container's folder that a URI names."""
    return Container(uri)


class Container:
    """See `Place`."""

    def __init__(self, uri: str) -> None:
        logging.getLogger("azure").setLevel(logging.CRITICAL)  # it logs at length what we tell in words
        self.uri = uri
        try:
            self._files, self._path = fsspec.core.url_to_fs(
                uri, skip_instance_cache=True, use_listings_cache=False, max_concurrency=_BLOCKS_AT_ONCE
            )
        except ValueError as error:
            raise UsageError(
                f"{uri} names no account",
                remedy="abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER names one",
            ) from error

        self._files.service_client = _client(self._files)

    def reach(self) -> None:
        """See `Place`."""
        self._files.info(self._path.partition("/")[0])

    def holds(self, file: ShardFile, local: Path) -> bool:
        """See `Place`."""
        try:
            found: dict[str, Any] = self._files.info(f"{self._path}/{file.path}", refresh=True)
        except FileNotFoundError:
            return False
        if found.get("size") != file.bytes:
            return False
        kept = (found.get("content_settings") or {}).get("content_md5")
        return kept is not None and bytes(kept) == _md5_of(local)

    def put(self, file: ShardFile, local: Path, sent: Callable[[int], None]) -> None:
        """See `Place`."""
        self._files.put_file(
            str(local),
            f"{self._path}/{file.path}",
            content_settings={"content_md5": bytearray(_md5_of(local))},
            validate_content=True,
            callback=_Told(sent),
        )
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
        self._files.pipe_file(f"{self._path}/{name}", data, overwrite=True)

    def remove(self, name: str) -> None:
        """See `Place`."""
        self._files.rm_file(f"{self._path}/{name}")

    def status(self, error: BaseException) -> int | None:
        """See `Place`."""
        for found in (error, error.__cause__):
            if isinstance(found, HttpResponseError) and found.status_code is not None:
                return int(found.status_code)
            if isinstance(found, ClientAuthenticationError):  # no credential worked: nothing was sent
                return 401
        return None

    def is_unanswered(self, error: BaseException) -> bool:
        """See `Place`."""
        lost = (ServiceRequestError, ServiceResponseError, IncompleteReadError, TimeoutError, ConnectionError)
        return isinstance(error, lost) or isinstance(error.__cause__, lost)


def _client(files: adlfs.AzureBlobFileSystem) -> BlobServiceClient:
    """Return a client that holds little of a file in memory, where the file system's own holds 64 MiB."""
    options = {
        "connection_timeout": ANSWER_S,
        "read_timeout": ANSWER_S,
        "retry_policy": ExponentialRetry(initial_backoff=1, increment_base=2, retry_total=3),  # its own: 15 s
        "max_block_size": _BLOCK,
        "max_single_put_size": _BLOCK,
    }
    if files.connection_string is not None:
        return BlobServiceClient.from_connection_string(files.connection_string, **options)
    credential = files.credential or files.account_key or files.sas_token
    return BlobServiceClient(files.account_url, credential=credential, **options)


class _Told(Callback):  # type: ignore[misc]  # fsspec has no types
    """Passes on what a block added, which adlfs tells as what there is in all."""

    def __init__(self, sent: Callable[[int], None]) -> None:
        super().__init__()
        self._sent = sent
        self._so_far = 0

    def absolute_update(self, value: int) -> None:
        if value > self._so_far:
            self._sent(value - self._so_far)
            self._so_far = value


def _md5_of(path: Path) -> bytes:
    total = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(_PIECE):
            total.update(block)
    return total.digest()
