"""Service accounts in pods: a token, the API server's address, and its certificate authority."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cloudrec_sandbox.kubernetes.storage.store import Store

_TARGET = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_S = 86_400


class Accounts:
    """The files and variables with which a pod calls the API server as its service account."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._host = ""
        self._port = ""
        self._authority: Path | None = None

    def serve(self, address: str, authority: Path | None) -> None:
        """Set the API server."""
        parts = urlsplit(address)
        self._host, self._port, self._authority = parts.hostname or "", str(parts.port or ""), authority

    @property
    def place(self) -> str:
        """Return the host and port of the API server."""
        return f"{self._host}:{self._port}"

    def environment(self) -> dict[str, str]:
        """Return the variables by which pods find the API server."""
        if not self._host:
            return {}
        return {
            "KUBERNETES_SERVICE_HOST": self._host,
            "KUBERNETES_SERVICE_PORT": self._port,
            "KUBERNETES_SERVICE_PORT_HTTPS": self._port,
        }

    def token(self, pod: Mapping[str, Any], wish: Mapping[str, Any]) -> str:
        """Return a token for a projected volume's source."""
        account = self._account(pod)
        if account is None:
            return ""
        seconds = int(wish.get("expirationSeconds") or _TOKEN_S)
        if not wish.get("audience"):
            return self._store.tokens.of_account(account, seconds)
        return self._store.tokens.of_account(account, seconds, str(wish["audience"]))

    def mounts(
        self, pod: Mapping[str, Any], folder: Path, others: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the mount of token, authority and namespace; empty if the pod wants or needs none."""
        account = self._account(pod)
        if account is None or any(mount["target"] == _TARGET for mount in others):
            return []
        wanted = pod["spec"].get("automountServiceAccountToken")
        if wanted is None:
            wanted = account.get("automountServiceAccountToken", True)
        if not wanted or self._authority is None:
            return []
        own = folder / "account"
        if not own.exists():
            own.mkdir()
            own.chmod(0o755)
            self._write(own / "token", self.token(pod, {}))
            self._write(own / "ca.crt", self._authority.read_text(encoding="utf-8"))
            self._write(own / "namespace", pod["metadata"]["namespace"])
        return [{"target": _TARGET, "source": str(own), "read_only": True}]

    def _account(self, pod: Mapping[str, Any]) -> dict[str, Any] | None:
        name = pod["spec"].get("serviceAccountName") or "default"
        return self._store.get("serviceaccounts", pod["metadata"]["namespace"], name)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
