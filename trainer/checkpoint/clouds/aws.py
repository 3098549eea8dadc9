"""S3 and what speaks its language; AWS_ENDPOINT_URL names another place than Amazon's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import s3fs
from botocore import exceptions

from trainer.checkpoint.clouds import TRANSIENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.checkpoint.clouds import Patience

_MARK = "upload"


def connect(uri: str, patience: Patience) -> tuple[Any, str]:
    """See `Cloud`."""
    config = {
        "connect_timeout": patience.answer_s,
        "read_timeout": patience.answer_s,
        "retries": {"total_max_attempts": 1},  # s3fs repeats by itself, with waits as we want them
    }
    path = uri.partition("://")[2].strip("/")
    if not path:
        raise ValueError("names no bucket; it is s3://BUCKET/FOLDER")
    s3fs.core.set_custom_error_handler(_is_transient)
    files = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False, config_kwargs=config)
    files.retries = patience.attempts
    return files, path


def status(error: BaseException) -> int | None:
    """See `Cloud`."""
    if isinstance(error, exceptions.NoCredentialsError):
        return 401
    found = error if isinstance(error, exceptions.ClientError) else error.__cause__
    if isinstance(found, exceptions.ClientError):
        return int(found.response["ResponseMetadata"]["HTTPStatusCode"])
    return None


def is_unanswered(error: BaseException) -> bool:
    """See `Cloud`."""
    lost = (exceptions.ConnectionError, exceptions.HTTPClientError, TimeoutError, ConnectionError)
    return isinstance(error, lost)


def _is_transient(error: BaseException) -> bool:
    return status(error) in TRANSIENT or is_unanswered(error)


def marked(mark: str) -> Mapping[str, Any]:
    """See `Cloud`."""
    return {"Metadata": {_MARK: mark}}


def mark_of(files: s3fs.S3FileSystem, path: str) -> str | None:
    """See `Cloud`."""
    found: Mapping[str, str] = files.metadata(path, refresh=True)
    return found.get(_MARK)


def in_parts(part_bytes: int) -> Mapping[str, Any]:
    """See `Cloud`."""
    return {"chunksize": part_bytes}


def discard_unfinished(files: s3fs.S3FileSystem, path: str) -> None:
    """See `Cloud`; their parts would be paid for until somebody aborts them."""
    bucket, key, _ = files.split_path(path)
    prefix = f"{key}/" if key else ""
    while found := files.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix).get("Uploads"):
        for upload in found:  # at most 1,000 are listed at a time
            files.abort_mpu(bucket, upload["Key"], upload["UploadId"])
