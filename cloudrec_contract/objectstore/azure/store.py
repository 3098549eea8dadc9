"""Azure Blob Storage; AZURE_STORAGE_ACCOUNT_NAME or AZURE_STORAGE_CONNECTION_STRING name the account.

AZURE_BLOB_STORAGE_URL names another service with its API: an account is at URL/ACCOUNT, as at Azurite. The
credential is that of Azure's tools, or a pod's workload identity. AZURE_AUTHORITY_HOST names another Entra
ID, and AZURE_CA_BUNDLE the authorities of both servers' certificates.

The service verifies the MD5 of each block. The MD5 of a whole blob is stored as the client sends it.
"""

from __future__ import annotations

import hashlib
import logging
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

import adlfs  # noqa: TC002 - fsspec imports it later; the import here finds a missing package early
import fsspec
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    IncompleteReadError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.storage.blob.aio import BlobServiceClient, ExponentialRetry
from fsspec.asyn import sync

from cloudrec_contract.objectstore.base import check_name
from cloudrec_contract.objectstore.bucket import MARK, BucketStore, UploadProgress
from cloudrec_contract.objectstore.errors import StoreUriError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from azure.core.credentials_async import AsyncTokenCredential
    from azure.storage.blob import BlobProperties

    from cloudrec_contract.objectstore.base import StoreOptions, UploadFile
    from cloudrec_contract.objectstore.retries import Patience

_LOG = logging.getLogger(__name__)
_EXAMPLE = "abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER"
_PIECE_BYTES = 2**20
_AUTHORITY = "https://login.microsoftonline.com"
# With any of these, adlfs chooses the credential.
_OTHER_CREDENTIALS = tuple(
    f"AZURE_STORAGE_{name}" for name in ("ACCOUNT_KEY", "CONNECTION_STRING", "SAS_TOKEN", "CLIENT_ID", "ANON")
)
_AT_ONCE = 4  # requests of an object
# An upload has two blocks of each of several files in memory; the client's default single put is 64 MiB.
_UPLOADING = {"max_block_size": 8 * 2**20, "max_single_put_size": 8 * 2**20}
_BLOCKS_AT_ONCE = 2


def open_store(uri: str, options: StoreOptions) -> AzureStore:
    """Return the container's folder that a URI names."""
    return AzureStore(uri, options)


class AzureStore(BucketStore):
    """See `ObjectStore`."""

    def __init__(self, uri: str, options: StoreOptions) -> None:
        logging.getLogger("azure").setLevel(logging.CRITICAL)  # the SDK logs every error that it raises
        files, path = _connect(uri, options.patience, _AT_ONCE)
        if not path:
            raise StoreUriError(f"names no container; it is {_EXAMPLE}")
        super().__init__(uri, files, path, options)

    def status(self, error: BaseException) -> int | None:
        """See `BucketStore`."""
        for found in (error, error.__cause__):
            if isinstance(found, HttpResponseError) and found.status_code is not None:
                return int(found.status_code)
            if isinstance(found, ClientAuthenticationError):  # no credential worked, so no request was sent
                return 401
        return None

    def is_unanswered(self, error: BaseException) -> bool:
        """See `BucketStore`."""
        lost = (ServiceRequestError, ServiceResponseError, IncompleteReadError, TimeoutError, ConnectionError)
        return isinstance(error, lost) or isinstance(error.__cause__, lost)

    def remove(self, names: Iterable[str]) -> None:
        """See `ObjectStore`; of an account with a hierarchical namespace, empty directories go with them."""
        gone = [check_name(name) for name in names]
        super().remove(gone)
        for folder in sorted({name.rpartition("/")[0] for name in gone}, key=len, reverse=True):
            while folder and self._remove_folder(folder):
                folder = folder.rpartition("/")[0]  # noqa: PLW2901 - one after the other, upwards

    def _remove_folder(self, folder: str) -> bool:
        """Remove a directory; return whether one was removed: the service keeps one that is not empty."""
        path = self._path(folder)
        try:
            # Without a hierarchical namespace there may be an object of this name.
            found: Mapping[str, str] = self._files.info(path, refresh=True).get("metadata") or {}
            if found.get("hdi_isfolder") != "true":
                return False
            self._files.rm_file(path)
        except Exception as error:  # noqa: BLE001 - an empty directory that stays costs nothing
            _LOG.debug("%s/%s stays: %s", self.uri, folder, error)
            return False
        return True

    def _listed(self, prefix: str) -> Mapping[str, int]:
        found: Mapping[str, int] = sync(self._files.loop, self._list, prefix)
        return found

    async def _list(self, prefix: str) -> Mapping[str, int]:
        async with self._files.service_client.get_container_client(self._bucket) as container:
            rows = container.list_blobs(name_starts_with=prefix or None, include=["metadata"])
            return {row.name: int(row.size) async for row in rows if not _is_folder(row)}

    def _ask_for_bucket(self) -> None:
        self._files.info(self._bucket)

    def _is_there(self, name: str, file: UploadFile) -> bool:
        found: dict[str, Any] = self._files.info(self._path(name), refresh=True)
        if found.get("size") != file.size:
            return False
        kept = (found.get("content_settings") or {}).get("content_md5")
        return kept is not None and bytes(kept) == _md5_of(file.path)

    def _send(self, name: str, file: UploadFile, sent: Callable[[int], None]) -> None:
        self._uploading.put_file(
            str(file.path),
            self._path(name),
            content_settings={"content_md5": bytearray(_md5_of(file.path))},
            validate_content=True,
            callback=UploadProgress(sent),
        )

    @cached_property
    def _uploading(self) -> Any:  # noqa: ANN401 - fsspec has no types
        """A file system with small blocks, so that uploads of several files need little memory."""
        return _connect(self.uri, self._patience, _BLOCKS_AT_ONCE, **_UPLOADING)[0]

    def _marked(self, mark: str) -> Mapping[str, Any]:
        return {"metadata": {MARK: mark, "is_directory": "false"}}

    def _mark_of(self, path: str) -> str | None:
        found: Mapping[str, str] = self._files.info(path, refresh=True).get("metadata") or {}
        return found.get(MARK)

    def _in_parts(self) -> Mapping[str, Any]:
        return {}  # the client's default, 64 MiB


class _Retry(ExponentialRetry):  # type: ignore[misc]  # seen as Any
    """Retries a request after the waits of the options; the SDK's default waits for 15 s."""

    def __init__(self, patience: Patience) -> None:
        super().__init__(retry_total=patience.attempts - 1)
        self._patience = patience

    def get_backoff_time(self, settings: Mapping[str, Any]) -> float:
        return self._patience.wait_s(settings["count"])


def _connect(uri: str, patience: Patience, at_once: int, **sizes: int) -> tuple[Any, str]:
    try:
        files, path = fsspec.core.url_to_fs(
            uri,
            skip_instance_cache=True,
            use_listings_cache=False,
            max_concurrency=at_once,
            credential=_credential(),
        )
    except ValueError as error:
        raise StoreUriError(f"names no account ({error}); it is {_EXAMPLE}") from error
    files.service_client = _client(files, patience, sizes)
    return files, path.rstrip("/")


def _credential() -> AsyncTokenCredential | None:
    """Return the credential of Azure's tools; None if the environment has one for storage alone."""
    if any(os.environ.get(name) for name in _OTHER_CREDENTIALS):
        return None
    from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - slow to import

    authority = os.environ.get("AZURE_AUTHORITY_HOST") or _AUTHORITY
    return DefaultAzureCredential(
        authority=authority,
        # The SDK would ask the public Entra ID whether another one is valid.
        disable_instance_discovery=not authority.removeprefix("https://").startswith("login."),
        exclude_shared_token_cache_credential=True,
        connection_verify=_verify(),
    )


def _verify() -> str | bool:
    """Return the file of authorities that verifies the servers' certificates; True for the system's."""
    return os.environ.get("AZURE_CA_BUNDLE") or True


def _client(
    files: adlfs.AzureBlobFileSystem, patience: Patience, sizes: Mapping[str, int]
) -> BlobServiceClient:
    options = {
        "connection_timeout": patience.answer_s,
        "read_timeout": patience.answer_s,
        "retry_policy": _Retry(patience),
        "connection_verify": _verify(),
        **sizes,
    }
    if files.connection_string is not None:
        return BlobServiceClient.from_connection_string(files.connection_string, **options)
    credential = files.credential or files.account_key or files.sas_token
    own = os.environ.get("AZURE_BLOB_STORAGE_URL", "").rstrip("/")
    url = f"{own}/{files.account_name}" if own else files.account_url
    return BlobServiceClient(url, credential=credential, **options)


def _is_folder(row: BlobProperties) -> bool:
    """Return whether an entry of a list is a directory, or an object in place of one."""
    about = {name.lower(): text for name, text in (row.metadata or {}).items()}
    return row.name.endswith("/") or "true" in {about.get("hdi_isfolder"), about.get("is_directory")}


def _md5_of(path: Path) -> bytes:
    total = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(_PIECE_BYTES):
            total.update(block)
    return total.digest()
