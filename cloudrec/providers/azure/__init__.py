"""Microsoft Azure: AKS, its network, its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.base.protocol import Needs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.home import Home
    from cloudrec.providers.base.protocol import Provider

__all__ = ["NEEDS", "create"]

NEEDS = Needs(
    extra="azure",
    modules=(
        "adlfs",
        "aiohttp",
        "azure.core",
        "azure.identity",
        "azure.mgmt.authorization",
        "azure.mgmt.compute",
        "azure.mgmt.containerregistry",
        "azure.mgmt.containerservice",
        "azure.mgmt.core",
        "azure.mgmt.msi",
        "azure.mgmt.network",
        "azure.mgmt.resource.resources",
        "azure.mgmt.resource.subscriptions",
        "azure.mgmt.storage",
        "azure.mgmt.storagecache",
        "azure.storage.blob.aio",
        "fsspec",
        "kubernetes.client",
        "kubernetes.config",
        "requests",
    ),
)


def create(home: Home, environment: Mapping[str, str]) -> Provider:
    """Return the provider.

    Args:
        home: the directory of cloudrec's files.
        environment: holds the variables of the credentials, with the names that Azure's tools use.
    """
    from cloudrec.providers.azure.provider import AzureProvider  # noqa: PLC0415 - NEEDS must be known without the SDK

    return AzureProvider(home, environment)
