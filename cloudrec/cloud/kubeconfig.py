"""A private kubeconfig for each cluster, in cloudrec's own home: never the user's own, and with no secret."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from cloudrec.home import make_private, storage_error, write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PRIVATE = 0o600


def kubeconfig(
    *, name: str, server: str, authority: str, command: Sequence[str], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return a kubeconfig for one cluster.

    Args:
        name: of cluster, user and context.
        server: URL of the API server.
        authority: the certificate authority that vouches for it, PEM in base64; empty for one of those that
            everybody trusts.
        command: arguments of this Python that print an ExecCredential.
        environment: what that command needs to be set; nothing secret.
    """
    vouched = {"certificate-authority-data": authority} if authority else {}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, **vouched}}],
        "users": [
            {
                "name": name,
                "user": {
                    "exec": {
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "interactiveMode": "Never",
                        "command": sys.executable,
                        "args": list(command),
                        "env": [{"name": key, "value": value} for key, value in environment.items()],
                    }
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def write(path: Path, config: Mapping[str, Any]) -> None:
    """Write it where it differs; a server or certificate that has changed is another cluster's."""
    text = json.dumps(config, indent=1)  # which is YAML too
    make_private(path.parent)
    try:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return
        write_atomically(path, text)
        path.chmod(_PRIVATE)
    except OSError as error:
        raise storage_error(path, error) from error


def credential(token: str, expires: str) -> dict[str, object]:
    """Return the ExecCredential that Kubernetes' clients ask for.

    Args:
        token: the bearer token.
        expires: until when it may be kept, ISO 8601 in UTC.
    """
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {},
        "status": {"expirationTimestamp": expires, "token": token},
    }
