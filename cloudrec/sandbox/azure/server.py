"""Azure's stand-in as a server."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cloudrec.sandbox import certificates, server
from cloudrec.sandbox.azure import entra, registry
from cloudrec.sandbox.azure.engine import Engine
from cloudrec.sandbox.azure.services.subscriptions import SUBSCRIPTION

_REGION = "eastus"


class AzureServer(server.SandboxServer):
    """Answers for ARM, Entra and the price list on one port, over HTTPS."""

    def __init__(self, port: int) -> None:
        registry.load()
        self._folder = TemporaryDirectory(prefix="cloudrec-sandbox-azure-")
        self._bundle, tls = certificates.make(Path(self._folder.name))
        super().__init__(port, Engine(), tls=tls)

    def server_close(self) -> None:
        """Close the port; nothing is left on the disk."""
        super().server_close()
        self._folder.cleanup()

    def announcement(self) -> dict[str, Any]:
        """What a client needs to reach it."""
        return {
            "endpoints": {"azure": self.address},
            "env": {
                "AZURE_RESOURCE_MANAGER_ENDPOINT_URL": self.address,
                "AZURE_AUTHORITY_HOST": self.address,
                "AZURE_CA_BUNDLE": str(self._bundle),
                "AZURE_TENANT_ID": entra.TENANT,
                "AZURE_CLIENT_ID": entra.CLIENT,
                "AZURE_CLIENT_SECRET": entra.SECRET,
                "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
                "AZURE_REGION": _REGION,
                "AZURE_CONTAINER_REGISTRY_URL": self.address,
                "AZURE_RETAIL_PRICES_URL": f"{self.address}/api/retail/prices",
                "CLOUDREC_CLUSTER_ADDONS": "none",  # no API server of its clusters answers, unless linked
                "CLOUDREC_SANDBOX_SPEED": f"{self.engine.world.clock.speed:g}",
            },
        }


def serve(port: int) -> AzureServer:
    """A server bound to a port of 127.0.0.1 (0: a free one), ready for `serve_forever`."""
    return AzureServer(port)
