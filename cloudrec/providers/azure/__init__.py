"""Microsoft Azure: AKS, its network, its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.azure.provider import AzureProvider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.home import Home
    from cloudrec.provider import Provider


def create(home: Home, environment: Mapping[str, str]) -> Provider:
    """Return the provider; `environment` holds the credentials' variables, as Azure's tools know them."""
    return AzureProvider(home, environment)
