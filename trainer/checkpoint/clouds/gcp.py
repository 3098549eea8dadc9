"""Google Cloud Storage; STORAGE_EMULATOR_HOST names another place than Google's."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import aiohttp
import requests
import stamina
from gcsfs.core import GCSFileSystem  # the package's own name asks a second API of each bucket
from gcsfs.retry import ChecksumError, HttpError, is_retriable
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.checkpoint.clouds import Patience

_MARK = "upload"


def connect(uri: str, patience: Patience) -> tuple[Any, str]:
    """See `Cloud`."""
    path = uri.partition("://")[2].strip("/")
    if not path:
        raise ValueError("names no bucket; it is gs://BUCKET/FOLDER")
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it logs a traceback for what we tell in words
    files = _Files(
        patience,
        token="anon" if os.environ.get("STORAGE_EMULATOR_HOST") else None,
        requests_timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=patience.answer_s, sock_read=patience.answer_s
        ),
    )
    return files, path


class _Files(GCSFileSystem):
    """Repeats a request soon, and also one that timed out: gcsfs by itself does neither."""

    cachable = False

    def __init__(self, patience: Patience, **options: Any) -> None:  # noqa: ANN401 - gcsfs's own
        super().__init__(use_listings_cache=False, **options)
        self._retrying = stamina.AsyncRetryingCaller(
            attempts=patience.attempts,
            timeout=None,
            wait_initial=patience.wait_s(1),
            wait_max=patience.wait_s(100),
        ).on(_is_transient)

    async def _request(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - gcsfs's own
        once = GCSFileSystem._request.__wrapped__  # noqa: SLF001 - without gcsfs's way to repeat it
        return await self._retrying(once, self, *args, **options)


def _is_transient(error: Exception) -> bool:
    return is_retriable(error) or is_unanswered(error)


def status(error: BaseException) -> int | None:
    """See `Cloud`."""
    if isinstance(error, HttpError) and error.code is not None:
        return int(error.code)
    if isinstance(error, (DefaultCredentialsError, RefreshError)):
        return 401
    if isinstance(error, requests.exceptions.ProxyError):  # gcsfs's word for 502
        return 502
    return 403 if isinstance(error, OSError) and str(error).startswith("Forbidden") else None


def is_unanswered(error: BaseException) -> bool:
    """See `Cloud`."""
    lost = (aiohttp.ClientError, ChecksumError, TransportError, TimeoutError, ConnectionError)
    return isinstance(error, lost)


def marked(mark: str) -> Mapping[str, Any]:
    """See `Cloud`."""
    return {"metadata": {_MARK: mark}}


def mark_of(files: GCSFileSystem, path: str) -> str | None:
    """See `Cloud`."""
    found: Mapping[str, str] = files.info(path).get("metadata") or {}
    return found.get(_MARK)


def in_parts(part_bytes: int) -> Mapping[str, Any]:
    """See `Cloud`."""
    return {"chunksize": part_bytes}


def discard_unfinished(files: GCSFileSystem, path: str) -> None:
    """See `Cloud`; sessions that nobody finishes are dropped by the service after a week."""
