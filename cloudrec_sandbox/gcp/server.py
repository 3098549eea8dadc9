"""Google Cloud's stand-in as a server: REST and `/_control` on one port, gRPC on another."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from cloudrec_sandbox.core import server
from cloudrec_sandbox.gcp import services
from cloudrec_sandbox.gcp.api import projects, registry
from cloudrec_sandbox.gcp.engine import Engine
from cloudrec_sandbox.gcp.wire import RpcServer

_REGION = "us-central1"


class GcpServer(server.CloudServer):
    """Answers for all of Google Cloud."""

    engine: Engine

    def __init__(self, port: int) -> None:
        registry.load(services)
        engine = Engine()
        super().__init__(port, engine)
        self._folder = tempfile.TemporaryDirectory(prefix="cloudrec-gcp-")
        self._key = engine.tokens.key(self.address).write(Path(self._folder.name))
        self._rpc = RpcServer(engine)

    def server_close(self) -> None:
        """Stop both servers, and remove the key's file."""
        super().server_close()
        self._rpc.stop()
        self._folder.cleanup()

    def announcement(self) -> dict[str, Any]:
        """Return what a client needs to reach the server."""
        return {
            "endpoints": {"gcp": self.address, "gcp-grpc": self._rpc.address},
            "env": {
                "GOOGLE_CLOUD_ENDPOINT_URL": self.address,
                "GOOGLE_CLOUD_GRPC_ENDPOINT": self._rpc.address,
                "GOOGLE_CLOUD_PROJECT": projects.HOME,
                "GOOGLE_CLOUD_REGION": _REGION,
                "GOOGLE_APPLICATION_CREDENTIALS": self._key,
                "STORAGE_EMULATOR_HOST": self.address,
                **self.variables,
            },
        }


def serve(port: int) -> GcpServer:
    """Return a server bound to a port of 127.0.0.1 (0: a free one), ready for `serve_forever`."""
    return GcpServer(port)
