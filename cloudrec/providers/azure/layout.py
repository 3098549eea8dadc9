"""The names, the zones and the sizes that a cluster's resources have on Azure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.providers.azure.api import ids
from cloudrec.providers.azure.api.rows import group_name, node_group_name, place
from cloudrec.providers.azure.prices import shipped
from cloudrec.providers.base.layout import CloudLayout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.azure.account import Caller
    from cloudrec.providers.azure.offers import AzureVmSize
    from cloudrec.providers.azure.settings import AzureSettings
    from cloudrec.providers.base.prices import Prices

TAG_ZONES = "cloudrec-zones"  # on the resource group: the zones chosen when the cluster was created
TAG_STORAGE_ACCOUNT = (
    "cloudrec-storage-account"  # there: the id of another cluster's account that the runs use
)
TAG_PREPARED = "cloudrec-prepared"  # on a group that its owner made for a deployer: `down` keeps it
NO_ZONE = ""  # in a region without zones, or for a size that no zone has
ACCOUNT_TYPE = "Microsoft.Storage/storageAccounts"
_HASH = 22  # characters; with "cr" before them, the most that a storage account's name may have


@dataclass(frozen=True, kw_only=True)
class AzureLayout(CloudLayout):
    """The decisions that all descriptions of resources share; the same spec gives the same layout.

    Attributes:
        settings: `cluster.settings`.
        region: the region.
        subscription: the subscription's id.
        caller: the principal that the credentials belong to, which gets access to the cluster and its data.
        gpu_zones: zones to try for GPU nodes, the best first; NO_ZONE in a region without zones.
        system_zones: zones that have the system nodes' size; empty in a region without zones.
        instance_types: sizes of GPU nodes to try, the best first.
        hardware: instance type -> its hardware.
        offered: instance type -> the zones that have it.
        arm: the URL of the cloud's resource manager.
        prices: the prices in the region.
    """

    settings: AzureSettings
    region: str
    subscription: str
    caller: Caller
    gpu_zones: tuple[str, ...] = field(default=())
    system_zones: tuple[str, ...] = field(default=())
    instance_types: tuple[str, ...] = field(default=())
    hardware: Mapping[str, AzureVmSize] = field(default_factory=dict)
    offered: Mapping[str, Sequence[str]] = field(default_factory=dict)
    arm: str = "https://management.azure.com"
    prices: Prices = field(default_factory=shipped)

    def __post_init__(self) -> None:
        # Prices of another region are never used.
        object.__setattr__(self, "prices", self.prices.within(self.region))

    @property
    def group(self) -> str:
        """The name of the resource group that holds all resources of the cluster."""
        return group_name(self.title)

    @property
    def tagged_end(self) -> str | None:
        """The end in the tags of the group and the cluster; empty for none; None if they are not kept up.

        A change of AKS's tags is an operation, during which AKS refuses to delete the pools. The end of a
        budget moves often, and is a tag of the workflow that ends the cluster.
        """
        return None if self.cluster.has_movable_end else self.cluster.expires or ""

    @property
    def node_group(self) -> str:
        """The name of the resource group that AKS makes for the nodes, and removes with the cluster."""
        return node_group_name(self.name)

    @property
    def has_managed_metrics(self) -> bool:
        """Whether Azure Monitor collects the cluster's metrics."""
        return self.cluster.metrics == "managed"

    @property
    def storage_account(self) -> str:
        """The storage account's name, unique in Azure: another cluster's, the settings', or computed."""
        if (shared := self.cluster.storage) is not None:
            return shared.account
        return self.settings.storage_account or self._unique

    @property
    def storage_group(self) -> str:
        """The name of the resource group that has the storage account."""
        shared = self.cluster.storage
        return self.group if shared is None else group_name(shared.cluster)

    @property
    def account_id(self) -> str:
        """The storage account's id."""
        return ids.resource(self.subscription, self.storage_group, ACCOUNT_TYPE, self.storage_account)

    @property
    def container(self) -> str:
        """The name of the container for data, checkpoints and results."""
        shared = self.cluster.storage
        return self.settings.container if shared is None else shared.bucket

    @property
    def prefix(self) -> str:
        """The part of the container that runs use; empty for the whole container."""
        shared = self.cluster.storage
        return self.settings.prefix if shared is None else shared.prefix

    @property
    def container_id(self) -> str:
        """The container's id."""
        return f"{self.account_id}/blobServices/default/containers/{self.container}"

    @property
    def is_storage_elsewhere(self) -> bool:
        """Whether the storage account is in another region."""
        shared = self.cluster.storage
        return shared is not None and place(shared.region) != place(self.region)

    @property
    def registry(self) -> str:
        """The image registry's name, unique in all of Azure and computed from the spec."""
        return self.settings.registry or self._unique

    @property
    def storage(self) -> str:
        """The URI under which runs keep their data."""
        root = f"abfs://{self.container}@{self.storage_account}.dfs.core.windows.net"
        return f"{root}/{self.prefix}" if self.prefix else root

    @property
    def _unique(self) -> str:
        text = f"{self.subscription}/{self.region}/{self.title}"
        return f"cr{hashlib.sha256(text.encode()).hexdigest()[:_HASH]}"
