"""A stand-in for the docker program: it records its calls, and pushes a small image by the real protocol.

Like docker, it reads a password from standard input, keeps the login in the folder of --config, pushes only
where it is logged in, and lists an image's digest among its names. DOCKER_STANDIN names the folder for
notes; a file `fails` there has a build end with its text, `no-daemon` lets no call reach a daemon.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import sys
from email.message import Message
from pathlib import Path

_OCI = "application/vnd.oci.image"


def main(words: list[str]) -> int:
    """Run one docker command."""
    notes = Path(os.environ["DOCKER_STANDIN"])
    with (notes / "calls.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(words) + "\n")
    config = Path.home() / ".docker"
    if words[0] == "--config":
        config, words = Path(words[1]), words[2:]
    if words[:2] == ["context", "inspect"]:
        print("unix:///var/run/docker.sock")
        return 0
    if (notes / "no-daemon").exists():
        print("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", file=sys.stderr)
        return 1
    doing = {
        "version": _version,
        "build": _build,
        "login": _login,
        "tag": _tag,
        "push": _push,
        "image": _inspect,
    }
    return doing[words[0]](words[1:], notes, config)


def _version(_words: list[str], _notes: Path, _config: Path) -> int:
    print("28.0.0")
    return 0


def _build(words: list[str], notes: Path, _config: Path) -> int:
    context = Path(words[-1])
    (notes / "context.json").write_text(json.dumps(sorted(path.name for path in context.iterdir())))
    print("#1 [internal] load build definition from Dockerfile")
    if (notes / "fails").exists():
        print((notes / "fails").read_text(), file=sys.stderr)
        return 1
    print(f"#9 naming to {words[words.index('--tag') + 1]}")
    return 0


def _login(words: list[str], _notes: Path, config: Path) -> int:
    user, address = words[words.index("--username") + 1], words[-1]
    key = base64.b64encode(f"{user}:{sys.stdin.read()}".encode()).decode()
    try:
        _ask(address, "GET", "/v2/", key)
    except _RefusedError as error:
        print(f"Error response from daemon: login attempt failed with {error}", file=sys.stderr)
        return 1
    (config / "config.json").write_text(json.dumps({"auths": {address: {"auth": key}}}))
    return 0


def _tag(words: list[str], notes: Path, _config: Path) -> int:
    (notes / "tagged").write_text(words[1])
    return 0


def _push(words: list[str], notes: Path, config: Path) -> int:
    address, _, rest = words[0].partition("/")
    name, _, tag = rest.rpartition(":")
    file = config / "config.json"
    logins = json.loads(file.read_text())["auths"] if file.exists() else {}
    if address not in logins:
        print("no basic auth credentials", file=sys.stderr)
        return 1
    try:
        digest = _send(address, name, tag, logins[address]["auth"])
    except _RefusedError as error:
        print(error, file=sys.stderr)
        return 1
    (notes / "pushed").write_text(f"{address}/{name}@{digest}")
    print(f"{tag}: digest: {digest} size: 1")
    return 0


def _send(address: str, name: str, tag: str, key: str) -> str:
    config = json.dumps(
        {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}
    )
    blob = f"sha256:{hashlib.sha256(config.encode()).hexdigest()}"
    place = _ask(address, "POST", f"/v2/{name}/blobs/uploads/", key)["Location"]
    _ask(address, "PUT", f"{place}?digest={blob}", key, config.encode())
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": {"mediaType": f"{_OCI}.config.v1+json", "digest": blob, "size": len(config)},
        "layers": [],
    }
    answer = _ask(address, "PUT", f"/v2/{name}/manifests/{tag}", key, json.dumps(manifest).encode())
    return str(answer["Docker-Content-Digest"])


def _inspect(_words: list[str], notes: Path, _config: Path) -> int:
    print(json.dumps([(notes / "pushed").read_text()]))
    return 0


def _ask(address: str, method: str, path: str, key: str, body: bytes = b"") -> Message:
    connection = http.client.HTTPConnection(address, timeout=180)
    headers = {"Authorization": f"Basic {key}", "Content-Type": f"{_OCI}.manifest.v1+json"}
    connection.request(method, path, body, headers)
    with connection.getresponse() as answer:
        content = answer.read()
    connection.close()
    if answer.status >= 400:
        raise _RefusedError(answer.status, content)
    return answer.headers


class _RefusedError(Exception):
    def __init__(self, status: int, content: bytes) -> None:
        told = json.loads(content)["errors"][0]
        super().__init__(f"{told['code'].lower().replace('_', ' ')}: {told['message']}")
        self.status = status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
