"""What a cluster's resources are called on Azure, and in which zones they are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.cloud.layout import CloudLayout
from cloudrec.providers.azure.prices import shipped
from cloudrec.providers.azure.rows import group_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.cloud.prices import Prices
    from cloudrec.providers.azure.credentials import Caller
    from cloudrec.providers.azure.offers import Hardware
    from cloudrec.providers.azure.settings import AzureSettings

TAG_ZONES = "cloudrec-zones"  # on the resource group: the zones that the cluster was laid out for
NO_ZONE = ""  # where a region has no zones, or has the size in none
_HASH = 22  # of the 24 characters that a storage account's name may have


@dataclass(frozen=True, kw_only=True)
class Layout(CloudLayout):
    """Everything that is decided before a resource is described; the same spec gives the same layout.

    Attributes:
        settings: the provider's own.
        region: where.
        subscription: whose, its id.
        caller: who calls, and so may use what is made.
        gpu_zones: zones to try for GPU nodes, the best first; NO_ZONE where there are none.
        system_zones: zones that have the size of the nodes for what is no training; none without zones.
        instance_types: kinds of GPU node to try, the best first.
        hardware: of each of them.
        offered: the zones that have each of them at all.
        prices: what things cost.
    """

    settings: AzureSettings
    region: str
    subscription: str
    caller: Caller
    gpu_zones: tuple[str, ...] = field(default=())
    system_zones: tuple[str, ...] = field(default=())
    instance_types: tuple[str, ...] = field(default=())
    hardware: Mapping[str, Hardware] = field(default_factory=dict)
    offered: Mapping[str, Sequence[str]] = field(default_factory=dict)
    prices: Prices = field(default_factory=shipped)

    @property
    def group(self) -> str:
        """The name of the resource group that holds everything of the cluster."""
        return group_name(self.title)

    @property
    def node_group(self) -> str:
        """The name of the resource group that AKS makes for the nodes, and removes with the cluster."""
        return f"{self.name}-nodes"

    @property
    def storage_account(self) -> str:
        """The storage account's name: unique in the world, recomputable by us."""
        return self.settings.storage_account or self._unique

    @property
    def registry(self) -> str:
        """The image registry's name: likewise."""
        return self.settings.registry or self._unique

    @property
    def storage(self) -> str:
        """URI of the cluster's data."""
        root = f"abfs://{self.settings.container}@{self.storage_account}.dfs.core.windows.net"
        return f"{root}/{self.settings.prefix}" if self.settings.prefix else root

    @property
    def _unique(self) -> str:
        text = f"{self.subscription}/{self.region}/{self.title}"
        return f"cr{hashlib.sha256(text.encode()).hexdigest()[:_HASH]}"
