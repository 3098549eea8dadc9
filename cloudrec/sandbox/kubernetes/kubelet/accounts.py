"""Service accounts in pods: a token, and where and by what authority the API server is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cloudrec.sandbox.kubernetes.store import Store

_TARGET = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_S = 86_400


class Accounts:
    """What a pod gets to call the API server as its service account."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._host = ""
        self._port = ""
        self._authority: Path | None = None

    def serve(self, address: str, authority: Path | None) -> None:
        """Know the API server."""
        parts = urlsplit(address)
        self._host, self._port, self._authority = parts.hostname or "", str(parts.port or ""), authority

    @property
    def place(self) -> str:
        """Host and port of the API server."""
        return f"{self._host}:{self._port}"

    def environment(self) -> dict[str, str]:
        """Where pods find the API server."""
        if not self._host:
            return {}
        return {
            "KUBERNETES_SERVICE_HOST": self._host,
            "KUBERNETES_SERVICE_PORT": self._port,
            "KUBERNETES_SERVICE_PORT_HTTPS": self._port,
        }

    def token(self, pod: Mapping[str, Any], wish: Mapping[str, Any]) -> str:
        """A token as a projected volume's source wishes it."""
        account = self._account(pod)
        if account is None:
            return ""
        return self._store.tokens.of_account(account, int(wish.get("expirationSeconds") or _TOKEN_S))

    def mounts(
        self, pod: Mapping[str, Any], folder: Path, others: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """The mount of token, authority and namespace, unless the pod wants none or brings its own."""
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
