"""Reads a kubeconfig into the SDK's configuration; runs the command that prints the credential."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import yaml

from cloudrec.errors import MissingExtraError, PreflightError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_EXEC_TIMEOUT_S = 60.0
_MARGIN = timedelta(minutes=1)  # a credential is renewed so long before it ends
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


class Kubeconfig:
    """One context of a kubeconfig file."""

    def __init__(self, path: Path, context: str) -> None:
        self._path = path
        document = _read(path)
        self._context = context or str(document.get("current-context", ""))
        chosen = self._named(document, "contexts", self._context).get("context") or {}
        self._cluster = _absolute(
            self._named(document, "clusters", chosen.get("cluster", "")).get("cluster") or {}, path
        )
        self._user = _absolute(self._named(document, "users", chosen.get("user", "")).get("user") or {}, path)
        self._expires: datetime | None = None

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self._cluster.get("server", ""))

    def configuration(self) -> Any:  # noqa: ANN401 - the SDK's Configuration, which is not typed
        """Return the SDK's configuration with a fresh credential.

        Raises:
            MissingExtraError: the extra `kubernetes` is not installed.
            PreflightError: the credential's command fails, or the file is not what it should be.
        """
        try:
            from kubernetes import client, config  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise MissingExtraError("kubernetes", module=error.name or "kubernetes") from error
        made = client.Configuration()
        try:
            config.load_kube_config_from_dict(
                self._document(), context="chosen", client_configuration=made, persist_config=False
            )
        except config.ConfigException as error:
            raise PreflightError(f"{self._path} is no kubeconfig that can be used: {error}") from error
        made.retries = False  # what may be sent again is decided by us
        made.keep_alive = True  # a connection that died while the machine slept is noticed
        return made

    @property
    def is_stale(self) -> bool:
        """Whether the credential ends soon."""
        return self._expires is not None and datetime.now(UTC) + _MARGIN >= self._expires

    def _document(self) -> dict[str, Any]:
        """Return a kubeconfig of one context whose user needs no command."""
        user = dict(self._user)
        if isinstance(user.get("exec"), dict):
            user = self._credential(user.pop("exec"))
        return {
            "clusters": [{"name": "chosen", "cluster": self._cluster}],
            "users": [{"name": "chosen", "user": user}],
            "contexts": [{"name": "chosen", "context": {"cluster": "chosen", "user": "chosen"}}],
            "current-context": "chosen",
        }

    def _credential(self, command: Mapping[str, Any]) -> dict[str, str]:
        """Run the command that prints an ExecCredential; return what a user may hold."""
        status = _run(command, folder=self._path.parent)
        expires = status.get("expirationTimestamp")
        try:
            self._expires = datetime.fromisoformat(expires) if isinstance(expires, str) else None
        except ValueError:
            self._expires = None
        user: dict[str, str] = {}
        if isinstance(status.get("token"), str):
            user["token"] = status["token"]
        for given, held in (
            ("clientCertificateData", "client-certificate-data"),
            ("clientKeyData", "client-key-data"),
        ):
            if isinstance(status.get(given), str):
                user[held] = base64.b64encode(status[given].encode()).decode()
        return user

    def _named(self, document: Mapping[str, Any], section: str, name: str) -> Mapping[str, Any]:
        entries = [entry for entry in document.get(section) or [] if isinstance(entry, dict)]
        for entry in entries:
            if entry.get("name") == name:
                return entry
        known = ", ".join(str(entry.get("name")) for entry in entries) or "none"
        raise PreflightError(
            f"{self._path} has no {section.removesuffix('s')} {name!r}",
            remedy=f"those it has: {known}; `cloudrec up` writes the file anew",
        )


def _read(path: Path) -> dict[str, Any]:
    again = "`cloudrec up` on the cluster writes it anew"
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PreflightError(f"there is no kubeconfig at {path}", remedy=again) from error
    except OSError as error:
        raise PreflightError(f"cannot read {path}: {error.strerror}", remedy=again) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PreflightError(f"{path} is no kubeconfig: {error}", remedy=again) from error
    if not isinstance(document, dict):
        raise PreflightError(f"{path} is no kubeconfig: it holds no mapping", remedy=again)
    return document


def _absolute(entry: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Files that a kubeconfig names are relative to its own folder."""
    return {
        key: str(path.parent / value) if key in _FILES and isinstance(value, str) else value
        for key, value in entry.items()
    }


def _run(command: Mapping[str, Any], *, folder: Path) -> dict[str, Any]:
    """Run a credential's command as Kubernetes' clients do; return the status that it prints."""
    version = command.get("apiVersion", "client.authentication.k8s.io/v1")
    asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    variables = {entry["name"]: entry["value"] for entry in command.get("env") or []}
    arguments = [str(command.get("command", "")), *(str(each) for each in command.get("args") or [])]
    shown = " ".join(arguments[:4])
    remedy = "log in to the cloud again; `cloudrec doctor` tells whose credentials are used"
    try:
        done = subprocess.run(
            arguments,
            env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_EXEC_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise PreflightError(f"cannot run {shown}: {error.strerror}", remedy=remedy) from error
    except subprocess.TimeoutExpired as error:
        raise PreflightError(
            f"{shown} printed no credential in {_EXEC_TIMEOUT_S:g} s", remedy=remedy
        ) from error
    if done.returncode != 0:
        said = done.stderr.strip()[-500:] or f"exit code {done.returncode}"
        raise PreflightError(f"no credential for the cluster: {shown} says: {said}", remedy=remedy)
    try:
        status = json.loads(done.stdout)["status"]
    except (ValueError, KeyError, TypeError) as error:
        raise PreflightError(f"{shown} printed no ExecCredential", remedy=remedy) from error
    return status if isinstance(status, dict) else {}
