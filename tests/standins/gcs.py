"""A stand-in for Google Cloud Storage's JSON API, on loopback and in memory.

Implemented: uploads in one request (`media`, `multipart`) and resumable ones, which
take chunks of a multiple of 256 KiB, answer 308 with the range held, and may be asked again after a
lost answer; downloads with ranges; metadata; listing by prefix, in pages; deletion;
ifGenerationMatch=0, checked when the object is made, with 412.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

import google_crc32c

_CHUNK = 256 * 1024
_PAGE = 1000


class _AnswerError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class _Object:
    data: bytes
    metadata: dict[str, str]
    generation: int


@dataclass(slots=True)
class _Session:
    bucket: str
    name: str
    metadata: dict[str, str]
    exclusive: bool
    data: bytearray = field(default_factory=bytearray)
    finished: bool = False


class GcsStandIn:
    """Serves the given buckets."""

    def __init__(self, *buckets: str) -> None:
        self.objects: dict[str, dict[str, _Object]] = {bucket: {} for bucket in buckets}
        self.sessions: dict[str, _Session] = {}
        self.lock = threading.Lock()
        self._generation = 0
        stand_in = self

        class Handler(_Handler):
            owner = stand_in

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def bucket(self, name: str) -> dict[str, _Object]:
        """Return a bucket's objects, by name."""
        if name not in self.objects:
            raise _AnswerError(404, "The specified bucket does not exist.")
        return self.objects[name]

    def store(self, bucket: str, name: str, data: bytes, metadata: dict[str, str], *, exclusive: bool) -> Any:
        """Make an object."""
        objects = self.bucket(bucket)
        if exclusive and name in objects:
            raise _AnswerError(412, "At least one of the pre-conditions you specified did not hold.")
        self._generation += 1
        objects[name] = _Object(bytes(data), metadata, self._generation)
        return self.resource(bucket, name)

    def resource(self, bucket: str, name: str) -> dict[str, Any]:
        """Return the description of an object."""
        found = self.bucket(bucket).get(name)
        if found is None:
            raise _AnswerError(404, f"No such object: {bucket}/{name}")
        digest = hashlib.md5(found.data, usedforsecurity=False).digest()
        return {
            "kind": "storage#object",
            "bucket": bucket,
            "name": name,
            "generation": str(found.generation),
            "size": str(len(found.data)),
            "md5Hash": base64.b64encode(digest).decode(),
            "crc32c": base64.b64encode(google_crc32c.value(found.data).to_bytes(4, "big")).decode(),
            "metadata": found.metadata,
            "contentType": "application/octet-stream",
            "timeCreated": "2026-01-01T00:00:00.000Z",
            "updated": "2026-01-01T00:00:00.000Z",
        }


class _Handler(BaseHTTPRequestHandler):
    owner: GcsStandIn
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""

    def _serve(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        try:
            with self.owner.lock:
                self._route(parts.path)
        except _AnswerError as error:
            self._json({"error": {"code": error.status, "message": str(error)}}, error.status)

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the base's names

    def _route(self, path: str) -> None:
        if "upload_id" in self.query:
            self._chunk()
        elif match := re.fullmatch(r"/upload/storage/v1/b/([^/]+)/o", path):
            self._upload(unquote(match[1]))
        elif match := re.fullmatch(r"/storage/v1/b/([^/]+)/o/?", path):
            self._list(unquote(match[1]))
        elif match := re.fullmatch(r"/(?:download/)?storage/v1/b/([^/]+)/o/(.+)", path):
            self._one(unquote(match[1]), unquote(match[2]))
        else:
            raise _AnswerError(404, f"{self.command} {path}: not known to this stand-in")

    def _upload(self, bucket: str) -> None:
        exclusive = self.query.get("ifGenerationMatch") == "0"
        kind = self.query.get("uploadType")
        if kind == "resumable":
            told = json.loads(self.body or b"{}")
            key = f"session-{len(self.owner.sessions)}"
            name = told.get("name") or self.query["name"]
            session = _Session(bucket, name, told.get("metadata", {}), exclusive)
            self.owner.bucket(bucket)
            self.owner.sessions[key] = session
            more = "&ifGenerationMatch=0" if exclusive else ""
            place = f"/upload/storage/v1/b/{bucket}/o?uploadType=resumable{more}&upload_id={key}"
            self._send(200, b"", {"Location": f"http://{self.headers['Host']}{place}"})
        elif kind == "multipart":
            told, data = self._two_parts()
            metadata = told.get("metadata", {})
            self._json(self.owner.store(bucket, told["name"], data, metadata, exclusive=exclusive))
        else:
            raise _AnswerError(400, f"uploadType {kind!r} is not known to this stand-in")

    def _two_parts(self) -> tuple[dict[str, Any], bytes]:
        match = re.search(r'boundary="?([^";]+)', self.headers["Content-Type"])
        if match is None:
            raise _AnswerError(400, "no boundary")
        border = f"--{match[1]}".encode()
        _, first, second = self.body.split(border, 2)
        told, data = (re.split(rb"\r?\n\r?\n", part, maxsplit=1)[1] for part in (first, second))
        return json.loads(told), re.sub(rb"\r?\n" + re.escape(border) + rb"--\s*\Z", b"", data)

    def _chunk(self) -> None:
        session = self.owner.sessions.get(self.query["upload_id"])
        if session is None:
            raise _AnswerError(404, "no such upload")
        if self.command == "DELETE":
            del self.owner.sessions[self.query["upload_id"]]
            self._send(499, b"")
            return
        told = self.headers["Content-Range"]
        match = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", told)
        if match is None:
            raise _AnswerError(400, f"Content-Range {told!r}")
        if not session.finished:
            self._take(session, match)
        if session.finished:
            self._json(self.owner.resource(session.bucket, session.name))
            return
        held = {"Range": f"bytes=0-{len(session.data) - 1}"} if session.data else {}
        self._send(308, b"", held)

    def _take(self, session: _Session, match: re.Match[str]) -> None:
        if match[1] is not None:
            start, end = int(match[1]), int(match[2])
            if end - start + 1 != len(self.body) or start > len(session.data):
                raise _AnswerError(400, "the chunk does not follow what is held")
            if match[3] == "*" and len(self.body) % _CHUNK:
                raise _AnswerError(400, "a chunk that is not the last must be a multiple of 256 KiB")
            session.data += self.body[len(session.data) - start :]  # without the received bytes
        if match[3] == str(len(session.data)):
            self.owner.store(
                session.bucket,
                session.name,
                bytes(session.data),
                session.metadata,
                exclusive=session.exclusive,
            )
            session.finished = True

    def _list(self, bucket: str) -> None:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter")
        after = self.query.get("pageToken", "")
        names = sorted(name for name in self.owner.bucket(bucket) if name.startswith(prefix) and name > after)
        page, prefixes = [], set()
        for name in names[:_PAGE]:
            rest = name[len(prefix) :]
            if delimiter and delimiter in rest:
                prefixes.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                page.append(self.owner.resource(bucket, name))
        more = {"nextPageToken": names[_PAGE - 1]} if len(names) > _PAGE else {}
        self._json({"kind": "storage#objects", "items": page, "prefixes": sorted(prefixes), **more})

    def _one(self, bucket: str, name: str) -> None:
        resource = self.owner.resource(bucket, name)
        if self.command == "DELETE":
            del self.owner.bucket(bucket)[name]
            self._send(204, b"")
        elif self.query.get("alt") == "media" or self.path.startswith("/download/"):
            self._media(self.owner.bucket(bucket)[name].data)
        else:
            self._json(resource)

    def _media(self, data: bytes) -> None:
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if match is None:
            self._send(200, data)
            return
        start, stop = int(match[1]), int(match[2]) + 1 if match[2] else len(data)
        if start >= len(data):
            raise _AnswerError(416, "Request range not satisfiable")
        stop = min(stop, len(data))
        self._send(206, data[start:stop], {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"})

    def _json(self, document: Any, status: int = 200) -> None:
        self._send(status, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response_only(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status != 204:
            self.wfile.write(body)
