"""Uploads: in one request, in one of two parts, or in a session of several."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.gcp.errors import GcpError
from cloudrec.sandbox.gcp.registry import rest
from cloudrec.sandbox.gcp.services.storage import buckets, conditions, objects
from cloudrec.sandbox.http import Reply, json_reply

if TYPE_CHECKING:
    from cloudrec.sandbox.gcp.call import Call

_URL = "/upload" + objects.URL
_QUERY = ("uploadType", "upload_id", "name", "contentEncoding", "kmsKeyName", "predefinedAcl", "projection")
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_BOUNDARY = re.compile(r'boundary="?([^";]+)"?')
_CONTENT_TYPE = re.compile(rb"content-type: *([^\r\n]+)", re.IGNORECASE)
_PARTS = 4  # what is before the metadata, they, the data, and the end
_INCOMPLETE = 308


@dataclass
class Session:
    """One upload in several requests."""

    bucket: str
    wishes: dict[str, Any]
    conditions: dict[str, str]
    data: bytearray = field(default_factory=bytearray)


@dataclass
class Sessions:
    """Those that were begun, by id."""

    sessions: dict[str, Session] = field(default_factory=dict)


@rest(
    "storage",
    "objects.insert",
    "POST",
    _URL,
    body=bytes,
    query=(*_QUERY, *conditions.ALL),
    permission="storage.objects.create",
)
def insert(call: Call) -> dict[str, Any] | Reply:
    """Upload an object, or begin to."""
    bucket = buckets.need(call)
    way = call.query.get("uploadType")
    if way == "media":
        kind = call.raw.lower.get("content-type", "application/octet-stream")
        return _finish(
            call, bucket.name, {"name": call.query.get("name", ""), "contentType": kind}, call.body
        )
    if way == "multipart":
        wishes, data = _two_parts(call)
        return _finish(call, bucket.name, wishes, data)
    if way != "resumable":
        raise buckets.invalid(f"Invalid uploadType: '{way or ''}'")
    wishes = json.loads(call.body or b"{}")
    wishes.setdefault("name", call.query.get("name", ""))
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
    """The metadata and the data of a multipart/related body, whose data are anything but text."""
    found = _BOUNDARY.search(call.raw.lower.get("content-type", ""))
    parts = call.body.split(b"--" + found[1].encode()) if found else []
    if len(parts) != _PARTS:
        raise buckets.invalid("Bad multipart body: it needs metadata and data.")
    (_, metadata), (head, data) = (
        part.removeprefix(b"\r\n").removesuffix(b"\r\n").split(b"\r\n\r\n", 1) for part in parts[1:3]
    )
    wishes = json.loads(metadata)
    wishes.setdefault("name", call.query.get("name", ""))
    kind = _CONTENT_TYPE.search(head)
    if kind:
        wishes.setdefault("contentType", kind[1].decode())
    return wishes, data


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
    permission="storage.objects.create",
)
def resume(call: Call) -> dict[str, Any] | Reply:
    """Send the next part of an upload, or ask how far it is."""
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
