"""Reads a kubeconfig into the SDK's configuration, and runs its credential command."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from cloudrec.errors import MissingExtraError, PreflightError
from cloudrec.safe_yaml import KUBECONFIG_BYTES, limited_text, safe_yaml
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TUNNEL = "CLOUDREC_API_ADDRESS"  # HOST:PORT of a tunnel to the API server
_EXEC_TIMEOUT_S = 60.0
_MARGIN = timedelta(minutes=1)  # a credential is renewed this long before it expires
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


_SECTIONS = {"contexts": "context", "clusters": "cluster", "users": "user"}


class Kubeconfig:
    """One context of a kubeconfig file."""

    def __init__(self, path: Path, context: str) -> None:
        self._path = path
        document = _read(path)
        self._context = context or str(document.get("current-context", ""))
        chosen = self._named(document, "contexts", self._context).get("context") or {}
        self.host = ""  # the server's name and port, if a tunnel leads to it
        cluster = self._named(document, "clusters", chosen.get("cluster", "")).get("cluster") or {}
        self._cluster = _absolute(cluster, path)
        if tunnel := os.environ.get(TUNNEL, ""):
            self.host = urlsplit(self.server).netloc
            self._cluster = _tunnelled(self._cluster, tunnel)
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
            PreflightError: the credential command fails, or the file is no kubeconfig.
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
        made.retries = False  # `Wire` decides what may be sent again
        made.keep_alive = True  # detects a connection that was lost while the machine slept
        return made

    @property
    def is_stale(self) -> bool:
        """Whether the credential has expired, or expires within a minute."""
        return self._expires is not None and datetime.now(UTC) + _MARGIN >= self._expires

    def _document(self) -> dict[str, Any]:
        """Return a kubeconfig with one context, whose user has a credential instead of a command."""
        # The SDK would run the command with the current folder of this process, and without a time limit.
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
        """Run the command that prints an ExecCredential; return the entries for a kubeconfig's user."""
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
            remedy=f"it has: {known}; `cloudrec up` writes the file again",
        )


def _read(path: Path) -> dict[str, Any]:
    again = "`cloudrec up` on the cluster writes it again"
    try:
        text = limited_text(path, KUBECONFIG_BYTES)
    except FileNotFoundError as error:
        raise PreflightError(f"there is no kubeconfig at {path}", remedy=again) from error
    except OSError as error:
        raise PreflightError(f"cannot read {path}: {error.strerror}", remedy=again) from error
    except UnicodeDecodeError as error:
        raise PreflightError(f"{path} is not a kubeconfig: {error}", remedy=again) from error
    document = safe_yaml(
        text, where=f"the kubeconfig {path}", error=PreflightError, remedy=again, most=KUBECONFIG_BYTES
    ).value
    if not isinstance(document, dict):
        raise PreflightError(f"{path} is no kubeconfig: it contains no mapping", remedy=again)
    for section, part in _SECTIONS.items():
        listed = document.get(section) or []
        is_list = isinstance(listed, list) and all(isinstance(entry, dict) for entry in listed)
        if not is_list or not all(isinstance(entry.get(part) or {}, dict) for entry in listed):
            message = f"{path} is no kubeconfig: {section} is not a list of mappings, each with a {part}"
            raise PreflightError(message, remedy=again)
    return document


def _absolute(entry: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return an entry with absolute file names; in a kubeconfig they are relative to its folder."""
    return {
        key: str(path.parent / value) if key in _FILES and isinstance(value, str) else value
        for key, value in entry.items()
    }


def _tunnelled(cluster: dict[str, Any], address: str) -> dict[str, Any]:
    """Return a kubeconfig's cluster at the address of a tunnel; its certificate must still have its name."""
    server = urlsplit(str(cluster.get("server", "")))
    place = urlsplit(f"//{address}")
    try:
        is_valid = bool(place.hostname) and place.port is not None and place.netloc == address
    except ValueError:  # the port is no number
        is_valid = False
    if not is_valid:
        raise PreflightError(
            f"{TUNNEL} is {address!r}; it must be HOST:PORT, the end of a tunnel to the API server",
            remedy=f"give one such as 127.0.0.1:8443, or unset {TUNNEL}",
        )
    named = {"tls-server-name": cluster.get("tls-server-name") or server.hostname}
    return {**cluster, "server": urlunsplit(server._replace(netloc=address)), **named}


def _run(command: Mapping[str, Any], *, folder: Path) -> dict[str, Any]:
    """Run a credential command as kubectl does; return the status of the ExecCredential that it prints."""
    version = command.get("apiVersion", "client.authentication.k8s.io/v1")
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    variables = {entry["name"]: entry["value"] for entry in command.get("env") or []}
    arguments = [str(command.get("command", "")), *(str(each) for each in command.get("args") or [])]
    shown = " ".join(arguments[:4])
    remedy = "log in to the cloud again; `cloudrec doctor` shows whose credentials are used"
    try:
        done = subprocess.run(
            arguments,
            env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(info)},
            cwd=folder if folder.is_dir() else None,  # `down` removes the kubeconfig with its folder
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
        reason = done.stderr.strip()[-500:] or f"exit code {done.returncode}"
        raise PreflightError(f"no credential for the cluster: {shown} failed: {reason}", remedy=remedy)
    try:
        status = safe_object(done.stdout)["status"]
    except (ValueError, KeyError, TypeError) as error:
        raise PreflightError(f"{shown} printed no ExecCredential", remedy=remedy) from error
    return status if isinstance(status, dict) else {}
