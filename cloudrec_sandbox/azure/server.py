"""Azure's stand-in as a server."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cloudrec_sandbox.azure import services
from cloudrec_sandbox.azure.arm import registry
from cloudrec_sandbox.azure.arm.paths import SUBSCRIPTION
from cloudrec_sandbox.azure.engine import Engine
from cloudrec_sandbox.azure.identity import entra
from cloudrec_sandbox.core import certificates, server

_REGION = "eastus"


class AzureServer(server.CloudServer):
    """Answers for ARM, Entra, Blob Storage and the price list on one port, over HTTPS."""

    def __init__(self, port: int) -> None:
        registry.load(services)
        self._folder = TemporaryDirectory(prefix="cloudrec-sandbox-azure-")
        self._bundle, tls = certificates.make(Path(self._folder.name))
        super().__init__(port, Engine(), tls=tls)

    def server_close(self) -> None:
        """Close the port, and remove the certificates from the disk."""
        super().server_close()
        self._folder.cleanup()

    def announcement(self) -> dict[str, Any]:
        """Return what a client needs to reach the server."""
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
                "AZURE_BLOB_STORAGE_URL": f"{self.address}/blob",
                "AZURE_CONTAINER_REGISTRY_URL": self.address,
                "AZURE_RETAIL_PRICES_URL": f"{self.address}/api/retail/prices",
                **self.variables,
            },
            "certificate_authority": str(self._bundle),
        }


def serve(port: int) -> AzureServer:
    """Return a server bound to a port of 127.0.0.1 (0: a free one), ready for `serve_forever`."""
    return AzureServer(port)
