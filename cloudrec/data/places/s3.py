"""S3, and what speaks its language: it keeps the crc32 of a whole object, which is the one in dataset.json.

The checksum goes with the upload, so that the service itself refuses what is not the file.
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

from cloudrec.data.places import ANSWER_S, ArrivedDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cloudrec.data.manifest import ShardFile

_PART = 16 << 20  # bytes; at most 10,000 parts make an object
_MOST_PARTS = 10_000
_PARTS_AT_ONCE = 8  # over all files: what is in memory stays below this many parts
_WHOLE = {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"}


def open_place(uri: str) -> Bucket:
    """Return the bucket's folder that a URI names."""
    return Bucket(uri)


class Bucket:
    """See `Place`."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._bucket, _, folder = uri.partition("://")[2].partition("/")
        self._folder = f"{folder}/" if folder else ""
        config = {"connect_timeout": ANSWER_S, "read_timeout": ANSWER_S, "max_pool_connections": 32}
        self._files = s3fs.S3FileSystem(
            skip_instance_cache=True, use_listings_cache=False, config_kwargs=config
        )
        self._threads = ThreadPoolExecutor(_PARTS_AT_ONCE, thread_name_prefix="part")

    def reach(self) -> None:
        """See `Place`."""
        self._ask("list_objects_v2", Prefix=self._folder, MaxKeys=1)

    def holds(self, file: ShardFile, local: Path) -> bool:
        """See `Place`."""
        del local
        try:
            found = self._ask("head_object", Key=self._key(file.path), ChecksumMode="ENABLED")
        except FileNotFoundError:
            return False
        return (found["ContentLength"], found.get("ChecksumCRC32")) == (file.bytes, _told(file.crc32))

    def put(self, file: ShardFile, local: Path, sent: Callable[[int], None]) -> None:
        """See `Place`."""
        key = self._key(file.path)
        if file.bytes <= _PART:
            checksum = {"ChecksumAlgorithm": "CRC32", "ChecksumCRC32": _told(file.crc32)}
            self._ask("put_object", Key=key, Body=local.read_bytes(), **checksum)
            sent(file.bytes)
        else:
            self._put_parts(key, file, local, sent)
        if not self.holds(file, local) and self._read_back(key) != file.crc32:
            raise ArrivedDamagedError(f"{self.uri}/{file.path}: what arrived is not what was sent")

    def _put_parts(self, key: str, file: ShardFile, local: Path, sent: Callable[[int], None]) -> None:
        upload = self._ask("create_multipart_upload", Key=key, **_WHOLE)["UploadId"]
        try:
            parts = self._send_parts(key, upload, file, local, sent)
            self._ask(
                "complete_multipart_upload",
                Key=key,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
                ChecksumType="FULL_OBJECT",
                ChecksumCRC32=_told(file.crc32),
            )
        except BaseException:
            self._ask("abort_multipart_upload", Key=key, UploadId=upload)  # its parts would be paid for
            raise

    def _send_parts(
        self, key: str, upload: str, file: ShardFile, local: Path, sent: Callable[[int], None]
    ) -> list[Mapping[str, Any]]:
        size = max(_PART, -(-file.bytes // _MOST_PARTS))
        ended = threading.Event()

        def send(number: int) -> Mapping[str, Any]:
            if ended.is_set():
                raise InterruptedError
            with local.open("rb") as stream:
                body = os.pread(stream.fileno(), size, (number - 1) * size)
            told = _told(f"{zlib.crc32(body):08x}")
            answer = self._ask(
                "upload_part",
                Key=key,
                UploadId=upload,
                PartNumber=number,
                Body=body,
                ChecksumAlgorithm="CRC32",
                ChecksumCRC32=told,
            )
            sent(len(body))
            return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32": told}

        futures = [self._threads.submit(send, number + 1) for number in range(-(-file.bytes // size))]
        try:
            return [future.result() for future in futures]
        finally:
            ended.set()  # after a failure the parts that wait are not sent
            for future in futures:
                future.cancel() or future.exception()

    def _read_back(self, key: str) -> str:
        """Return the crc32 of what is there; for services that speak S3 and keep no checksum."""
        crc = 0
        with self._files.open(f"{self._bucket}/{key}", "rb", block_size=_PART, cache_type="none") as stream:
            while block := stream.read(_PART):
                crc = zlib.crc32(block, crc)
        return f"{crc:08x}"

    def read(self, name: str) -> bytes | None:
        """See `Place`."""
        try:
            return bytes(self._files.cat_file(f"{self._bucket}/{self._key(name)}"))
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """See `Place`."""
        self._ask("put_object", Key=self._key(name), Body=data, ChecksumAlgorithm="CRC32")

    def remove(self, name: str) -> None:
        """See `Place`."""
        self._ask("delete_object", Key=self._key(name))

    def status(self, error: BaseException) -> int | None:
        """See `Place`."""
        if isinstance(error, exceptions.NoCredentialsError):
            return 401
        found = error if isinstance(error, exceptions.ClientError) else error.__cause__
        if isinstance(found, exceptions.ClientError):
            return int(found.response["ResponseMetadata"]["HTTPStatusCode"])
        return None

    def is_unanswered(self, error: BaseException) -> bool:
        """See `Place`."""
        lost = (exceptions.ConnectionError, exceptions.HTTPClientError, TimeoutError, ConnectionError)
        return isinstance(error, lost)

    def _key(self, name: str) -> str:
        return f"{self._folder}{name}"

    def _ask(self, operation: str, **arguments: Any) -> Any:  # noqa: ANN401 - botocore's own
        return self._files.call_s3(operation, Bucket=self._bucket, **arguments)


def _told(crc32: str) -> str:
    """Return a crc32 as S3 writes it."""
    return base64.b64encode(bytes.fromhex(crc32)).decode()
