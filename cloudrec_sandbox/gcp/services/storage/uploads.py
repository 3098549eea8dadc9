"""Uploads: simple, multipart, or resumable in several requests."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.http import Reply, json_reply
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest
from cloudrec_sandbox.gcp.services.storage import buckets, conditions, objects

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call

_URL = "/upload" + objects.URL
_QUERY = ("uploadType", "upload_id", "name", "contentEncoding", "kmsKeyName", "predefinedAcl", "projection")
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_BOUNDARY = re.compile(r'boundary="?([^";]+)"?')
_CONTENT_TYPE = re.compile(rb"content-type: *([^\r\n]+)", re.IGNORECASE)
_PARTS = 4  # the text before the metadata, the metadata, the data, and the end
_INCOMPLETE = 308


@dataclass
class Session:
    """One resumable upload."""

    bucket: str
    wishes: dict[str, Any]
    conditions: dict[str, str]
    data: bytearray = field(default_factory=bytearray)


@dataclass
class Sessions:
    """The resumable uploads, by id."""

    sessions: dict[str, Session] = field(default_factory=dict)


@rest(
    "storage",
    "objects.insert",
    "POST",
    _URL,
    body=bytes,
    query=(*_QUERY, *conditions.ALL),
)
def insert(call: Call) -> dict[str, Any] | Reply:
    """Upload an object, or begin a resumable upload."""
    bucket = buckets.need(call)
    if "upload_id" in call.query:
        return _continued(call)  # gcsfs (`_upload_chunk`) continues an upload by POST, which Google accepts
    way = call.query.get("uploadType")
    if way == "media":
        kind = call.raw.lower.get("content-type", "application/octet-stream")
        wishes, data = {"name": call.query.get("name", ""), "contentType": kind}, call.body
    elif way == "multipart":
        wishes, data = _two_parts(call)
    if way in ("media", "multipart"):
        objects.check_permissions(call, bucket, str(wishes.get("name", "")))
        return _finish(call, bucket.name, wishes, data)
    if way != "resumable":
        raise buckets.invalid(f"Invalid uploadType: '{way or ''}'")
    wishes = json.loads(call.body or b"{}")
    wishes.setdefault("name", call.query.get("name", ""))
    objects.check_permissions(call, bucket, str(wishes["name"]))
    if later := call.raw.lower.get("x-upload-content-type"):
        wishes.setdefault("contentType", later)
    upload = secrets.token_urlsafe(24)
    held = {key: value for key, value in call.query.items() if key in conditions.ALL}
    call.world.state(Sessions).sessions[upload] = Session(bucket.name, wishes, held)
    where = f"http://{call.raw.lower['host']}/upload/storage/v1/b/{bucket.name}/o"
    return Reply(
        headers=[
            ("Location", f"{where}?uploadType=resumable&upload_id={upload}"),
            ("X-GUploader-UploadID", upload),
        ]
    )


def _two_parts(call: Call) -> tuple[dict[str, Any], bytes]:
    """Return the metadata and the data of a multipart/related body; the data may be binary."""
    found = _BOUNDARY.search(call.raw.lower.get("content-type", ""))
    parts = call.body.split(b"--" + found[1].encode()) if found else []
    if len(parts) != _PARTS:
        raise buckets.invalid("Bad multipart body: it needs metadata and data.")
    try:
        (_, metadata), (head, data) = (_part(part) for part in parts[1:3])
    except ValueError:
        raise buckets.invalid("Bad multipart body: a part has no headers.") from None
    wishes = json.loads(metadata)
    wishes.setdefault("name", call.query.get("name", ""))
    kind = _CONTENT_TYPE.search(head)
    if kind:
        wishes.setdefault("contentType", kind[1].decode())
    return wishes, data


def _part(text: bytes) -> tuple[bytes, bytes]:
    """Return the head and the content of a part; ValueError if no empty line is between them.

    RFC 2046 ends lines by CRLF. Google accepts LF, too: gcsfs (`simple_upload`) sends nothing else.
    """
    end = b"\r\n" if text.startswith(b"\r\n") else b"\n"
    head, content = text.removeprefix(end).removesuffix(end).split(end * 2, 1)
    return head, content


def _finish(call: Call, bucket: str, wishes: dict[str, Any], data: bytes) -> dict[str, Any]:
    target = buckets.named(call.world, bucket)
    there = objects.find(target, str(wishes.get("name", "")))
    conditions.check(call, there.document if there else None)
    return objects.put(call, target, wishes, data)


@rest(
    "storage",
    "objects.insert",
    "PUT",
    _URL,
    body=bytes,
    query=(*_QUERY, *conditions.ALL),
)
def resume(call: Call) -> dict[str, Any] | Reply:
    """Take the next part of an upload, or return how much has arrived."""
    return _continued(call)


def _continued(call: Call) -> dict[str, Any] | Reply:
    """Return the object after its last part, and before that how much has arrived."""
    sessions = call.world.state(Sessions).sessions
    session = sessions.get(call.query.get("upload_id", ""))
    if session is None:
        raise GcpError("NOT_FOUND", "The upload session does not exist.")
    text = call.raw.lower.get("content-range", f"bytes 0-{len(call.body) - 1}/{len(call.body)}")
    found = _CONTENT_RANGE.fullmatch(text)
    if found is None and call.body:
        raise buckets.invalid(f"Failed to parse Content-Range header: {text}")
    first, _, total = found.groups() if found else (None, None, "0")
    if first is not None:
        # A part that was sent again after a lost answer begins too early: the reply says where to continue.
        if int(first) != len(session.data):
            return _so_far(session)
        session.data += call.body
    if total == "*" or int(total) != len(session.data):
        return _so_far(session)
    call.query.update(session.conditions)
    document = _finish(call, session.bucket, session.wishes, bytes(session.data))
    del sessions[call.query["upload_id"]]
    return json_reply(document, HTTPStatus.OK)


def _so_far(session: Session) -> Reply:
    headers = [("Range", f"bytes=0-{len(session.data) - 1}")] if session.data else []
    return Reply(status=_INCOMPLETE, headers=headers)
