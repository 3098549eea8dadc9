"""A stand-in for a registry of images, on loopback and in memory: what a push uses of the distribution API.

Implemented: Basic authentication with a challenge; repositories that must exist; uploads in pieces, which end
with a digest that must match; a manifest only after all its blobs; digests of manifests; pulls by tag and
digest; 401, 403 and 404 with a registry's messages.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

_BLOBS = re.compile(r"/v2/(?P<name>.+)/blobs/(?P<digest>sha256:[0-9a-f]{64})")
_UPLOADS = re.compile(r"/v2/(?P<name>.+)/blobs/uploads/(?P<id>[0-9a-f]*)")
_MANIFESTS = re.compile(r"/v2/(?P<name>.+)/manifests/(?P<reference>[^/]+)")
_WORDS = {
    401: ("UNAUTHORIZED", "authentication required"),
    403: ("DENIED", "requested access to the resource is denied"),
    404: ("NAME_UNKNOWN", "repository name not known to registry"),
}


class _AnswerError(Exception):
    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code, self.message = (code, message) if code else _WORDS[status]


@dataclass(slots=True)
class Repository:
    """The contents of a repository."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)  # digest -> media type, bytes
    tags: dict[str, str] = field(default_factory=dict)


class RegistryStandIn:
    """Serves the named repositories to clients with the password; `readers` may log in and not push."""

    def __init__(self, *repositories: str, username: str = "pusher") -> None:
        self.repositories = {name: Repository() for name in repositories}
        self.username, self.password = username, uuid.uuid4().hex
        self.readers: set[str] = set()
        self.uploads: dict[str, bytes] = {}
        self.lock = threading.Lock()
        stand_in = self

        class Handler(_Handler):
            owner = stand_in

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    owner: RegistryStandIn
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""

    def _serve(self) -> None:
        self.body = self._body()
        parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        try:
            with self.owner.lock:
                self._route(parts.path)
        except _AnswerError as error:
            told = {"errors": [{"code": error.code, "message": error.message}]}
            challenge = {"WWW-Authenticate": 'Basic realm="registry"'} if error.status == 401 else {}
            self._send(error.status, json.dumps(told).encode(), challenge)

    do_GET = do_PUT = do_POST = do_PATCH = do_HEAD = do_DELETE = _serve  # noqa: N815 - the base's names

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _route(self, path: str) -> None:
        self._user = self._authenticated()
        if path == "/v2/":
            self._send(200, b"{}")
        elif match := _UPLOADS.fullmatch(path):
            self._upload(self._repository(match["name"], writing=True), match["name"], match["id"])
        elif match := _BLOBS.fullmatch(path):
            self._blob(self._repository(match["name"]), match["digest"])
        elif match := _MANIFESTS.fullmatch(path):
            writing = self.command == "PUT"
            self._manifest(self._repository(match["name"], writing=writing), match["reference"])
        else:
            raise _AnswerError(404, "UNSUPPORTED", f"{self.command} {path} is not known to this stand-in")

    def _authenticated(self) -> str:
        kind, _, told = self.headers.get("Authorization", "").partition(" ")
        user, _, password = (
            base64.b64decode(told).decode().partition(":") if kind == "Basic" else ("", "", "")
        )
        if password != self.owner.password or user not in {self.owner.username, *self.owner.readers}:
            raise _AnswerError(401)
        return user

    def _repository(self, name: str, *, writing: bool = False) -> Repository:
        if writing and self._user in self.owner.readers:
            raise _AnswerError(403)
        if name not in self.owner.repositories:
            raise _AnswerError(404)
        return self.owner.repositories[name]

    def _upload(self, repository: Repository, name: str, upload: str) -> None:
        if self.command == "POST":
            upload = uuid.uuid4().hex
            self.owner.uploads[upload] = b""
        if upload not in self.owner.uploads:
            raise _AnswerError(404, "BLOB_UPLOAD_UNKNOWN", "blob upload unknown to registry")
        self.owner.uploads[upload] += self.body
        digest = self.query.get("digest")
        if self.command == "PUT" or (self.command == "POST" and digest):
            data = self.owner.uploads.pop(upload)
            if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
                raise _AnswerError(400, "DIGEST_INVALID", "provided digest did not match uploaded content")
            repository.blobs[digest] = data
            self._send(201, b"", {"Location": f"/v2/{name}/blobs/{digest}", "Docker-Content-Digest": digest})
            return
        held = max(len(self.owner.uploads[upload]) - 1, 0)
        place = f"/v2/{name}/blobs/uploads/{upload}"
        self._send(202, b"", {"Location": place, "Range": f"0-{held}", "Docker-Upload-UUID": upload})

    def _blob(self, repository: Repository, digest: str) -> None:
        if digest not in repository.blobs:
            raise _AnswerError(404, "BLOB_UNKNOWN", "blob unknown to registry")
        self._send(200, repository.blobs[digest], {"Docker-Content-Digest": digest})

    def _manifest(self, repository: Repository, reference: str) -> None:
        if self.command == "PUT":
            self._put_manifest(repository, reference)
            return
        digest = repository.tags.get(reference, reference)
        if digest not in repository.manifests:
            raise _AnswerError(404, "MANIFEST_UNKNOWN", "manifest unknown")
        kind, data = repository.manifests[digest]
        self._send(200, data, {"Docker-Content-Digest": digest, "Content-Type": kind})

    def _put_manifest(self, repository: Repository, reference: str) -> None:
        told: dict[str, Any] = json.loads(self.body)
        named = [told["config"]["digest"], *(layer["digest"] for layer in told["layers"])]
        if missing := [each for each in named if each not in repository.blobs]:
            raise _AnswerError(404, "MANIFEST_BLOB_UNKNOWN", f"blob unknown to registry: {missing[0]}")
        digest = f"sha256:{hashlib.sha256(self.body).hexdigest()}"
        if reference.startswith("sha256:") and reference != digest:
            raise _AnswerError(400, "DIGEST_INVALID", "manifest's digest did not match")
        repository.manifests[digest] = (self.headers["Content-Type"], self.body)
        if not reference.startswith("sha256:"):
            repository.tags[reference] = digest
        self._send(201, b"", {"Docker-Content-Digest": digest, "Location": self.path})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response_only(status)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
