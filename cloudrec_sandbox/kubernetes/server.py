"""The API server over HTTPS, and a kubeconfig for it."""

from __future__ import annotations

import base64
import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cloudrec_sandbox.core import certificates, server
from cloudrec_sandbox.core.admission import TOKEN_VARIABLE
from cloudrec_sandbox.kubernetes import settings
from cloudrec_sandbox.kubernetes.engine import Engine

__all__ = ["KubernetesServer", "serve", "settings"]
_NAME = "cloudrec-sandbox"
_CONTROLLERS = "cloudrec_sandbox.kubernetes.controllers"


class KubernetesServer(server.SandboxServer):
    """Answers for a whole cluster on one port, over HTTPS."""

    def __init__(self, port: int) -> None:
        self._folder = TemporaryDirectory(prefix="cloudrec-sandbox-kubernetes-")
        self._bundle, tls = certificates.make(Path(self._folder.name))
        engine = Engine()
        try:
            super().__init__(port, engine, tls=tls)
        except OSError:
            engine.world.collector.close()
            self._folder.cleanup()
            raise
        self.world = engine.world
        self._kubeconfig = self._write_kubeconfig()
        if find_spec(_CONTROLLERS):
            start = import_module(_CONTROLLERS).start
            self.world.controllers = start(
                self.world.store, self.world.clock, address=self.address, authority=self._bundle
            )

    def server_close(self) -> None:
        """Close the port and end all processes; remove the files."""
        super().server_close()
        if self.world.controllers is not None:
            self.world.controllers.close()
        self.world.collector.close()
        self._folder.cleanup()

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
