"""Blobs are written whole, or as blocks that a list makes a blob; and they are deleted."""

from __future__ import annotations

import base64
import binascii
import itertools
from http import HTTPStatus
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from cloudrec_sandbox.azure.blob import data
from cloudrec_sandbox.azure.blob.errors import BlobError, bad_header, bad_query, missing_header, no_blob
from cloudrec_sandbox.core.http import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.azure.blob.data import Blob
    from cloudrec_sandbox.azure.blob.request import BlobRequest

_MIB = 2**20
_MOST_PUT, _MOST_BLOCK = 5000 * _MIB, 4000 * _MIB  # since version 2019-12-12
_MOST_BLOCKS, _MOST_STAGED = 50_000, 100_000
_MOST_ID = 64  # bytes of a block's id before it is encoded
_MOST_NAME, _MOST_PARTS = 1024, 254
_TAGS = "x-ms-tags"


def put_blob(request: BlobRequest) -> Reply:
    """Make a block blob of the body."""
    kind = request.header("x-ms-blob-type")
    if not kind:
        raise missing_header("x-ms-blob-type")
    if kind != "BlockBlob":
        raise BlobError("NotImplemented", f"This stand-in has no {kind}.", status=HTTPStatus.NOT_IMPLEMENTED)
    _check_name(request)
    _check_length(request, _MOST_PUT)
    md5 = request.check_md5()
    settings = {"Content-MD5": md5, **request.settings()}
    request.check_write()
    made = _make(request, [("", request.http.body)], settings)
    return _created(made, md5)


def put_block(request: BlobRequest) -> Reply:
    """Stage the body as a block of a blob that may not exist yet."""
    id_ = request.query.get("blockid", "")
    _check_id(id_)
    _check_name(request)
    _check_length(request, _MOST_BLOCK)
    if not request.http.body:
        raise bad_header("Content-Length", "0")
    md5 = request.check_md5()
    staged, blob = request.data.staged.get(request.place.name, {}), request.blob
    known = itertools.chain(staged, (each for each, _ in blob.blocks) if blob else ())
    if any(each and len(each) != len(id_) for each in known):
        raise BlobError("InvalidBlobOrBlock", "The specified blob or block content is invalid.")
    if id_ not in staged and len(staged) >= _MOST_STAGED:
        raise BlobError(
            "BlockCountExceedsLimit",
            "The uncommitted block count cannot exceed the maximum limit of 100,000 blocks.",
            status=HTTPStatus.CONFLICT,
        )
    request.data.staged.setdefault(request.place.name, {})[id_] = request.http.body
    headers = [("Content-MD5", md5), ("x-ms-request-server-encrypted", "true")]
    return Reply(status=HTTPStatus.CREATED, headers=headers)


def put_block_list(request: BlobRequest) -> Reply:
    """Make the blob of the blocks that the body lists; all other blocks are dropped."""
    _check_name(request)
    request.check_md5()
    listed = _listed(request.http.body)
    staged = request.data.staged.get(request.place.name, {})
    blob = request.blob
    blocks = list(_found(listed, staged, dict(blob.blocks) if blob else {}))
    request.check_write()
    return _created(_make(request, blocks, request.settings()))


def set_metadata(request: BlobRequest) -> Reply:
    """Replace a blob's metadata."""
    blob, metadata = request.blob, request.metadata()
    if blob is None:
        raise no_blob()
    request.check_write()
    blob.metadata, blob.etag = metadata, data.new_etag(request.world)
    blob.changed_at = request.world.now()
    return Reply(headers=_identity(blob))


def delete(request: BlobRequest) -> Reply:
    """Delete a blob, or an empty directory."""
    blob = request.blob
    if blob is None:
        raise no_blob()
    request.check_write()
    if blob.is_folder and any(request.data.below(blob.name)):
        raise BlobError(
            "DirectoryIsNotEmpty",
            "This operation is not permitted on a non-empty directory.",
            status=HTTPStatus.CONFLICT,
        )
    del request.data.blobs[blob.name]
    return Reply(status=HTTPStatus.ACCEPTED, headers=[("x-ms-delete-type-permanent", "true")])


def _make(request: BlobRequest, blocks: list[tuple[str, bytes]], settings: Mapping[str, str]) -> Blob:
    metadata = request.metadata()
    if request.has_folders:
        data.make_folders(request.world, request.data, request.place.name)
    return data.put(
        request.world, request.data, request.place.name, blocks=blocks, settings=settings, metadata=metadata
    )


def _check_name(request: BlobRequest) -> None:
    """Refuse names that are too long, and in a hierarchical namespace a file where a directory is."""
    name = request.place.name
    if len(name) > _MOST_NAME or name.count("/") >= _MOST_PARTS:
        raise BlobError("InvalidResourceName", "The specified resource name contains invalid characters.")
    if not request.has_folders:
        return
    if request.header(_TAGS):
        raise BlobError(
            "BlobTagsNotSupportedForAccountType",
            "Blob tags are not supported for this account: it has a hierarchical namespace.",
            status=HTTPStatus.CONFLICT,
        )
    parts = name.split("/")
    above = itertools.accumulate(parts[:-1], lambda path, each: f"{path}/{each}")
    blobs = request.data.blobs
    # A path cannot be a file and a directory ("PathConflict" in the reference of Data Lake Storage).
    if any(path in blobs and not blobs[path].is_folder for path in above) or (
        request.blob is not None and request.blob.is_folder
    ):
        raise BlobError(
            "PathConflict",
            "The specified path, or an element of the path, exists and its resource type is invalid for this "
            "operation.",
            status=HTTPStatus.CONFLICT,
        )


def _check_length(request: BlobRequest, most: int) -> None:
    is_chunked = "transfer-encoding" in request.http.lower
    if not is_chunked and "content-length" not in request.http.lower:
        raise BlobError(
            "MissingContentLengthHeader",
            "The Content-Length header was not specified.",
            status=HTTPStatus.LENGTH_REQUIRED,
        )
    if len(request.http.body) > most:
        raise BlobError(
            "RequestBodyTooLarge",
            "The request body is too large and exceeds the maximum permissible limit.",
            status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )


def _check_id(id_: str) -> None:
    if not id_:
        raise BlobError(
            "MissingRequiredQueryParameter",
            "A query parameter that's mandatory for this request is not specified. (blockid)",
        )
    try:
        size = len(base64.b64decode(id_, validate=True))
    except binascii.Error as error:
        raise bad_query("blockid", id_) from error
    if not 0 < size <= _MOST_ID:
        raise bad_query("blockid", id_)


def _listed(body: bytes) -> list[tuple[str, str]]:
    """Return the list's rows: where to look for a block, and its id."""
    try:
        root = ET.fromstring(body)  # noqa: S314 - expat limits what entities expand to
    except ET.ParseError as error:
        raise _bad_xml() from error
    rows = [(each.tag, (each.text or "").strip()) for each in root]
    if root.tag != "BlockList" or any(tag not in ("Latest", "Committed", "Uncommitted") for tag, _ in rows):
        raise _bad_xml()
    if len(rows) > _MOST_BLOCKS:
        raise BlobError("BlockListTooLong", "The block list may not contain more than 50,000 blocks.")
    return rows


def _found(
    rows: list[tuple[str, str]], staged: Mapping[str, bytes], committed: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes]]:
    for where, id_ in rows:
        places = {"Latest": (staged, committed), "Committed": (committed,), "Uncommitted": (staged,)}[where]
        block = next((place[id_] for place in places if id_ in place), None)
        if block is None or not id_:
            raise BlobError("InvalidBlockList", "The specified block list is invalid.")
        yield id_, block


def _bad_xml() -> BlobError:
    return BlobError("InvalidXmlDocument", "XML specified is not syntactically valid.")


def _created(blob: Blob, md5: str = "") -> Reply:
    headers = [*_identity(blob), ("x-ms-request-server-encrypted", "true")]
    if md5:
        headers.append(("Content-MD5", md5))
    return Reply(status=HTTPStatus.CREATED, headers=headers)


def _identity(blob: Blob) -> list[tuple[str, str]]:
    return [("ETag", blob.etag), ("Last-Modified", data.moment(blob.changed_at))]
