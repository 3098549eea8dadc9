"""S3 through s3fs; AWS_ENDPOINT_URL names another service with S3's API.

S3 keeps the crc32 of a whole object. An upload contains the file's checksum, so that the service refuses
damaged bytes.
"""

from __future__ import annotations

import base64
import os
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import s3fs
from botocore import exceptions

from cloudrec_contract.objectstore.bucket import MARK, BucketStore
from cloudrec_contract.objectstore.retries import TRANSIENT
from cloudrec_contract.objectstore.schemes import path_in_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec_contract.objectstore.base import StoreOptions, UploadFile

_PART_BYTES = 16 * 2**20  # of an upload
_MOST_PARTS = 10_000
_PARTS_AT_ONCE = 8  # over all files: this many parts are in memory at most
_CONNECTIONS = 32
_WHOLE = {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"}


def open_store(uri: str, options: StoreOptions) -> S3Store:
    """Return the bucket's folder that a URI names."""
    return S3Store(uri, options)


class S3Store(BucketStore):
    """See `ObjectStore`."""

    def __init__(self, uri: str, options: StoreOptions) -> None:
        patience = options.patience
        path = path_in_bucket(uri)
        s3fs.core.set_custom_error_handler(_may_pass)
        files = s3fs.S3FileSystem(
            skip_instance_cache=True,
            use_listings_cache=False,
            config_kwargs={
                "connect_timeout": patience.answer_s,
                "read_timeout": patience.answer_s,
                "max_pool_connections": _CONNECTIONS,
                "retries": {"total_max_attempts": 1},  # s3fs retries, with the waits of the options
            },
            **_endpoint(options.environment),
        )
        files.retries = patience.attempts
        super().__init__(uri, files, path, options)
        self._threads = ThreadPoolExecutor(_PARTS_AT_ONCE, thread_name_prefix="part")

    def status(self, error: BaseException) -> int | None:
        """See `BucketStore`."""
        return _status(error)

    def is_unanswered(self, error: BaseException) -> bool:
        """See `BucketStore`."""
        return _is_unanswered(error)

    def _listed(self, prefix: str) -> dict[str, int]:
        """Return the size of each object whose key begins with a prefix, but for markers of folders."""
        found: dict[str, int] = {}
        more: dict[str, str] = {}
        while True:
            answer = self._ask("list_objects_v2", Prefix=prefix, **more)
            rows = answer.get("Contents") or ()
            found |= {row["Key"]: int(row["Size"]) for row in rows if not row["Key"].endswith("/")}
            if not answer.get("IsTruncated"):
                return found
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def _ask_for_bucket(self) -> None:
        self._ask("list_objects_v2", Prefix=self._folder, MaxKeys=1)

    def _is_there(self, name: str, file: UploadFile) -> bool:
        found = self._ask("head_object", Key=self._key(name), ChecksumMode="ENABLED")
        return (found["ContentLength"], found.get("ChecksumCRC32")) == (file.size, _encoded(file.crc32))

    def _arrived(self, name: str, file: UploadFile) -> bool:
        return self._is_there(name, file) or self._read_back(name) == file.crc32

    def _send(self, name: str, file: UploadFile, sent: Callable[[int], None]) -> None:
        if file.size > _PART_BYTES:
            self._send_in_parts(self._key(name), file, sent)
            return
        checksum = {"ChecksumAlgorithm": "CRC32", "ChecksumCRC32": _encoded(file.crc32)}
        self._ask("put_object", Key=self._key(name), Body=file.path.read_bytes(), **checksum)
        sent(file.size)

    def _send_in_parts(self, key: str, file: UploadFile, sent: Callable[[int], None]) -> None:
        upload = self._ask("create_multipart_upload", Key=key, **_WHOLE)["UploadId"]
        try:
            parts = self._send_parts(key, upload, file, sent)
            self._ask(
                "complete_multipart_upload",
                Key=key,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
                ChecksumType="FULL_OBJECT",
                ChecksumCRC32=_encoded(file.crc32),
            )
        except BaseException:
            # S3 keeps, and bills, the parts of an unfinished upload until it is aborted.
            self._ask("abort_multipart_upload", Key=key, UploadId=upload)
            raise

    def _send_parts(
        self, key: str, upload: str, file: UploadFile, sent: Callable[[int], None]
    ) -> list[Mapping[str, Any]]:
        size = max(_PART_BYTES, -(-file.size // _MOST_PARTS))
        ended = threading.Event()

        def send(number: int) -> Mapping[str, Any]:
            if ended.is_set():
                raise InterruptedError
            with file.path.open("rb") as stream:
                body = os.pread(stream.fileno(), size, (number - 1) * size)
            checksum = _encoded(f"{zlib.crc32(body):08x}")
            answer = self._ask(
                "upload_part",
                Key=key,
                UploadId=upload,
                PartNumber=number,
                Body=body,
                ChecksumAlgorithm="CRC32",
                ChecksumCRC32=checksum,
            )
            sent(len(body))
            return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32": checksum}

        futures = [self._threads.submit(send, number + 1) for number in range(-(-file.size // size))]
        try:
            return [future.result() for future in futures]
        finally:
            ended.set()  # after a failure, the waiting parts are not sent
            for future in futures:
                future.cancel() or future.exception()

    def _read_back(self, name: str) -> str:
        """Return the crc32 of the stored object, for services with S3's API that keep no checksum."""
        crc = 0
        with self._files.open(self._path(name), "rb", block_size=_PART_BYTES, cache_type="none") as stream:
            while block := stream.read(_PART_BYTES):
                crc = zlib.crc32(block, crc)
        return f"{crc:08x}"

    def _marked(self, mark: str) -> Mapping[str, Any]:
        return {"Metadata": {MARK: mark}}

    def _mark_of(self, path: str) -> str | None:
        found: Mapping[str, str] = self._files.metadata(path, refresh=True)
        return found.get(MARK)

    def _discard_unfinished(self) -> None:
        """See `BucketStore`: S3 bills the parts of unfinished uploads until they are aborted."""
        while found := self._ask("list_multipart_uploads", Prefix=self._folder).get("Uploads"):
            for upload in found:  # at most 1,000 are listed at a time
                self._files.abort_mpu(self._bucket, upload["Key"], upload["UploadId"])

    def _key(self, name: str) -> str:
        return f"{self._folder}{name}"

    def _ask(self, operation: str, **arguments: Any) -> Any:  # noqa: ANN401 - botocore's own
        return self._files.call_s3(operation, Bucket=self._bucket, **arguments)


def _endpoint(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the endpoint from these variables, unless this process's environment has one."""
    named = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    return {"endpoint_url": named} if named and not os.environ.get("AWS_ENDPOINT_URL") else {}


def _status(error: BaseException) -> int | None:
    if isinstance(error, exceptions.NoCredentialsError):
        return 401
    found = error if isinstance(error, exceptions.ClientError) else error.__cause__
    if isinstance(found, exceptions.ClientError):
        return int(found.response["ResponseMetadata"]["HTTPStatusCode"])
    return None


def _is_unanswered(error: BaseException) -> bool:
    lost = (exceptions.ConnectionError, exceptions.HTTPClientError, TimeoutError, ConnectionError)
    return isinstance(error, lost)


def _may_pass(error: BaseException) -> bool:
    return _status(error) in TRANSIENT or _is_unanswered(error)


def _encoded(crc32: str) -> str:
    """Return a crc32 in S3's format (base64)."""
    return base64.b64encode(bytes.fromhex(crc32)).decode()
