"""A private kubeconfig for each cluster, in cloudrec's home, without secrets. The user's is never changed."""

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
        name: the name of the cluster, the user and the context.
        server: URL of the API server.
        authority: the certificate authority that signs its certificate, PEM in base64; empty for a public
            authority.
        command: arguments of this Python interpreter that print an ExecCredential.
        environment: variables of that command; no secrets.
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
                        # kubectl runs the command in the current folder. Without -P, Python would import
                        # modules from there instead of cloudrec's.
                        "args": ["-P", *command],
                        "env": [{"name": key, "value": value} for key, value in environment.items()],
                    }
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def write(path: Path, config: Mapping[str, Any]) -> None:
    """Write a kubeconfig that only its owner can read, unless the file holds it already."""
    text = json.dumps(config, indent=1)  # JSON is valid YAML
    make_private(path.parent)
    try:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return
        write_atomically(path, text)
        path.chmod(_PRIVATE)
    except OSError as error:
        raise storage_error(path, error) from error


def credential(token: str, expires: str) -> dict[str, object]:
    """Return the ExecCredential that Kubernetes clients expect from a credential command.

    Args:
        token: the bearer token.
        expires: when the client must get a new one, ISO 8601 in UTC.
    """
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {},
        "status": {"expirationTimestamp": expires, "token": token},
    }
