"""Azure Blob Storage; AZURE_STORAGE_ACCOUNT_NAME or AZURE_STORAGE_CONNECTION_STRING tells where."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.checkpoint.clouds import Patience


_MARK = "upload"
_OPTIONS = {"skip_instance_cache": True, "use_listings_cache": False, "max_concurrency": 4}


class _Retry(ExponentialRetry):
    """Repeats a request soon: by itself the SDK's client would wait for 15 s."""

    def __init__(self, patience: Patience) -> None:
        super().__init__(retry_total=patience.attempts - 1)
        self._patience = patience

    def get_backoff_time(self, settings: Mapping[str, Any]) -> float:
        return self._patience.wait_s(settings["count"])


def connect(uri: str, patience: Patience) -> tuple[Any, str]:
    """See `Cloud`."""
    files, path = fsspec.core.url_to_fs(uri, **_OPTIONS)
    if not path:
        raise ValueError("names no container; it is abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER")
    files.service_client = _client(files, patience)
    return files, path


def _client(files: adlfs.AzureBlobFileSystem, patience: Patience) -> BlobServiceClient:
    options = {
        "connection_timeout": patience.answer_s,
        "read_timeout": patience.answer_s,
        "retry_policy": _Retry(patience),
    }
    if files.connection_string is not None:
        return BlobServiceClient.from_connection_string(files.connection_string, **options)
    credential = files.credential or files.account_key or files.sas_token
    return BlobServiceClient(files.account_url, credential=credential, **options)


def status(error: BaseException) -> int | None:
    """See `Cloud`."""
    for found in (error, error.__cause__):
        if isinstance(found, HttpResponseError) and found.status_code is not None:
            return int(found.status_code)
        if isinstance(found, ClientAuthenticationError):  # no credential worked: nothing was sent
            return 401
    return None


def is_unanswered(error: BaseException) -> bool:
    """See `Cloud`."""
    lost = (ServiceRequestError, ServiceResponseError, IncompleteReadError, TimeoutError, ConnectionError)
    return isinstance(error, lost) or isinstance(error.__cause__, lost)


def marked(mark: str) -> Mapping[str, Any]:
    """See `Cloud`."""
    return {"metadata": {_MARK: mark, "is_directory": "false"}}


def mark_of(files: adlfs.AzureBlobFileSystem, path: str) -> str | None:
    """See `Cloud`."""
    found: Mapping[str, str] = files.info(path, refresh=True).get("metadata") or {}
    return found.get(_MARK)


def in_parts(part_bytes: int) -> Mapping[str, Any]:  # noqa: ARG001 - the client's own setting, 64 MiB
    """See `Cloud`."""
    return {}


def discard_unfinished(files: adlfs.AzureBlobFileSystem, path: str) -> None:
    """See `Cloud`; blocks that nobody commits are dropped by the service after a week."""
