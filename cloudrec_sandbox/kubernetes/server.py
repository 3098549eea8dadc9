"""The API server over HTTPS, and a kubeconfig for it."""

from __future__ import annotations

import base64
import json
import threading
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core import certificates, server
from cloudrec_sandbox.core.admission import TOKEN_VARIABLE
from cloudrec_sandbox.kubernetes import settings
from cloudrec_sandbox.kubernetes.engine import Engine

if TYPE_CHECKING:
    import ssl

__all__ = ["KubernetesServer", "serve", "settings"]
_NAME = "cloudrec-sandbox"
_CONTROLLERS = "cloudrec_sandbox.kubernetes.controllers"
# Settings that a cloud or a test makes for all of its clusters.
_COPIED = {"environment", "processes", "bookkeeping", "images", "operators", "webhook_lag_s"}


class KubernetesServer(server.SandboxServer):
    """Answers for a whole cluster on one port, over HTTPS."""

    def __init__(self, port: int, *, issued: tuple[Path, ssl.SSLContext] | None = None) -> None:
        """Bind to a port of 127.0.0.1 (0: a free one).

        Args:
            port: the port.
            issued: the authority's file and the server's certificate of a sibling; None to issue others.
        """
        self._folder = TemporaryDirectory(prefix="cloudrec-sandbox-kubernetes-")
        self._bundle, self._context = issued or certificates.make(Path(self._folder.name))
        engine = Engine()
        try:
            super().__init__(port, engine, tls=self._context)
        except OSError:
            engine.world.collector.close()
            self._folder.cleanup()
            raise
        self.world = engine.world
        self._siblings: list[KubernetesServer] = []
        if issued is None:
            self.world.siblings = self
        self._kubeconfig = self._write_kubeconfig()
        if find_spec(_CONTROLLERS):
            start = import_module(_CONTROLLERS).start
            self.world.controllers = start(
                self.world.store, self.world.clock, address=self.address, authority=self._bundle
            )

    def server_close(self) -> None:
        """Close the port and end all processes; remove the files."""
        for sibling in self._siblings:
            sibling.shutdown()
            sibling.server_close()
        super().server_close()
        if self.world.controllers is not None:
            self.world.controllers.close()
        self.world.collector.close()
        self._folder.cleanup()

    def announcements(self) -> list[dict[str, Any]]:
        """Return the announcement of each sibling."""
        return [sibling.announcement() for sibling in self._siblings]

    def have(self, number: int) -> None:
        """Make siblings until there are so many."""
        while len(self._siblings) < number:
            sibling = KubernetesServer(0, issued=(self._bundle, self._context))
            for name in _COPIED & self.engine.book.settings.keys():
                setting = self.engine.book.settings[name]
                setting.write(sibling.world, setting.read(self.world))
            sibling.world.clock.speed = self.world.clock.speed
            threading.Thread(target=sibling.serve_forever, name="sibling", daemon=True).start()
            self._siblings.append(sibling)

    def announcement(self) -> dict[str, Any]:
        """Return what a client needs to reach the server."""
        return {
            "endpoints": {"kubernetes": self.address},
            "env": {"KUBECONFIG": str(self._kubeconfig), TOKEN_VARIABLE: self.admission.token},
            "certificate_authority": str(self._bundle),
            "token": self.world.store.tokens.admin,
        }

    def _write_kubeconfig(self) -> Path:
        authority = base64.b64encode(self._bundle.read_bytes()).decode()
        cluster = {"server": self.address, "certificate-authority-data": authority}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": _NAME, "cluster": cluster}],
            "users": [{"name": _NAME, "user": {"token": self.world.store.tokens.admin}}],
            "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
            "current-context": _NAME,
        }
        path = Path(self._folder.name) / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1), encoding="utf-8")  # every JSON document is YAML
        return path


def serve(port: int) -> KubernetesServer:
    """Return a server bound to a port of 127.0.0.1 (0: a free one), ready for `serve_forever`."""
    return KubernetesServer(port)
