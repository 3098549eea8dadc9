"""One request to a container's data, with what several operations read from it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.blob.errors import BlobError, bad_header, condition_failed

if TYPE_CHECKING:
    from datetime import datetime

    from cloudrec_sandbox.azure.arm.blob_place import Place
    from cloudrec_sandbox.azure.blob.data import Blob, Container
    from cloudrec_sandbox.core.http import HttpRequest
    from cloudrec_sandbox.core.world import World

_META = "x-ms-meta-"
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MOST_META = 8 * 1024
_MD5_BYTES = 16
# Request header -> the header with which reads return it.
_SETTINGS = {
    "x-ms-blob-content-type": "Content-Type",
    "x-ms-blob-content-encoding": "Content-Encoding",
    "x-ms-blob-content-language": "Content-Language",
    "x-ms-blob-content-disposition": "Content-Disposition",
    "x-ms-blob-cache-control": "Cache-Control",
    "x-ms-blob-content-md5": "Content-MD5",
}


@dataclass(frozen=True, kw_only=True)
class BlobRequest:
    """A request that may be answered.

    Attributes:
        world: the stand-in's state.
        place: what it is for.
        http: the request itself.
        query: the query, names in lower case.
        data: the container's data.
        has_folders: whether the account has a hierarchical namespace.
    """

    world: World
    place: Place
    http: HttpRequest
    query: dict[str, str]
    data: Container
    has_folders: bool

    def header(self, name: str) -> str:
        """Return a header; empty if it is missing."""
        return self.http.lower.get(name, "")

    @property
    def blob(self) -> Blob | None:
        """Return the blob that it is for; None if there is none."""
        return self.data.blobs.get(self.place.name.rstrip("/") if self.has_folders else self.place.name)

    def settings(self) -> dict[str, str]:
        """Return the content headers that the blob is to have."""
        found = {shown: self.header(name) for name, shown in _SETTINGS.items() if self.header(name)}
        return {"Content-Type": "application/octet-stream", **found}

    def metadata(self) -> dict[str, str]:
        """Return the metadata that the blob is to have; BlobError for names that are no identifiers."""
        rows = {
            name[len(_META) :]: value
            for name, value in self.http.headers.items()
            if name.lower().startswith(_META)
        }
        if any(not _IDENTIFIER.fullmatch(name) for name in rows):
            raise BlobError(
                "InvalidMetadata",
                "The metadata specified is invalid. It has characters that are not permitted.",
            )
        if sum(len(name) + len(value) for name, value in rows.items()) > _MOST_META:
            raise BlobError(
                "MetadataTooLarge", "The size of the specified metadata is above the permitted maximum."
            )
        return rows

    def check_md5(self) -> str:
        """Return the body's MD5 in base64; BlobError if the header Content-MD5 has another."""
        own = base64.b64encode(hashlib.md5(self.http.body, usedforsecurity=False).digest()).decode()
        given = self.header("content-md5")
        if given and given != own:
            if not _is_md5(given):
                raise BlobError("InvalidMd5", "The MD5 value specified in the request is invalid.")
            raise BlobError(
                "Md5Mismatch",
                "The MD5 value specified in the request did not match with the MD5 value calculated by the "
                "server.",
            )
        return own

    def check_write(self) -> None:
        """Refuse a write whose condition does not hold for the present blob."""
        blob = self.blob
        wanted, unwanted = self.header("if-match"), self.header("if-none-match")
        if wanted and (blob is None or wanted not in ("*", blob.etag)):
            raise condition_failed()
        if unwanted and blob is not None:
            if unwanted == "*":
                message = "The specified blob already exists."
                raise BlobError("BlobAlreadyExists", message, status=HTTPStatus.CONFLICT)
            if unwanted == blob.etag:
                raise condition_failed()
        self._check_times(blob, HTTPStatus.PRECONDITION_FAILED)

    def check_read(self, blob: Blob) -> None:
        """Refuse a read whose condition does not hold."""
        wanted, unwanted = self.header("if-match"), self.header("if-none-match")
        if wanted and wanted not in ("*", blob.etag):
            raise condition_failed()
        if unwanted == "*":
            raise BlobError(
                "UnsatisfiableCondition",
                "The request includes an unsatisfiable condition for this operation.",
            )
        if unwanted == blob.etag:
            raise _not_modified()
        self._check_times(blob, HTTPStatus.NOT_MODIFIED)

    def _check_times(self, blob: Blob | None, otherwise: int) -> None:
        since, until = self._moment("if-modified-since"), self._moment("if-unmodified-since")
        if blob is None:
            return
        # HTTP's dates have whole seconds.
        if since is not None and int(blob.changed_at) <= since.timestamp():
            raise _not_modified() if otherwise == HTTPStatus.NOT_MODIFIED else condition_failed()
        if until is not None and int(blob.changed_at) > until.timestamp():
            raise condition_failed()

    def _moment(self, name: str) -> datetime | None:
        text = self.header(name)
        if not text:
            return None
        try:
            return parsedate_to_datetime(text)
        except ValueError as error:
            raise bad_header(name, text) from error


def _not_modified() -> BlobError:
    message = "The condition specified using HTTP conditional header(s) is not met."
    return BlobError("ConditionNotMet", message, status=HTTPStatus.NOT_MODIFIED)


def _is_md5(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _MD5_BYTES
    except binascii.Error:
        return False
