"""The settings of Azure: names, blocks of addresses, sizes, and the administrators of the cluster."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from cloudrec.spec.load import validated
from cloudrec.spec.models import Model, Names

if TYPE_CHECKING:
    from typing import Self

    from cloudrec.spec.models import ClusterSpec

# Prefix lengths of a network's block: Azure's limit, and the least that has room for the subnets.
_WIDEST, _NARROWEST = 8, 22
_GUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ADMIN = re.compile(rf"(?:(user|group|app):)?({_GUID})", re.IGNORECASE)
_KINDS = {"user": "User", "group": "Group", "app": "ServicePrincipal"}
LUSTRE_LOGS = "cloudrec-lustre-logs"  # the container for the logs of imports
# Lustre SKU -> its smallest size and its increment, in TiB.
LUSTRE_STEPS = {
    "AMLFS-Durable-Premium-40": 48,
    "AMLFS-Durable-Premium-125": 16,
    "AMLFS-Durable-Premium-250": 8,
    "AMLFS-Durable-Premium-500": 4,
}


def _private(value: str) -> str:
    block = ipaddress.IPv4Network(value)
    if not block.is_private:
        raise ValueError("is not a private block; choose one in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16")
    return str(block)


def _network_block(value: str) -> str:
    block = ipaddress.IPv4Network(_private(value))
    if not _WIDEST <= block.prefixlen <= _NARROWEST:
        raise ValueError(f"is a /{block.prefixlen}; /{_WIDEST} to /{_NARROWEST} are allowed")
    return str(block)


def _admins(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _ADMIN.fullmatch(value):
            raise ValueError(f"has {value!r}; an admin is the object id of a user, or group:ID, or app:ID")
    return values


_Block = Annotated[str, AfterValidator(_private)]


class AzureSettings(Model):
    """`cluster.settings` for Azure."""

    vnet_cidr: Annotated[str, AfterValidator(_network_block)] = Field(
        "10.42.0.0/16",
        description="the network's addresses; must not overlap with networks that are peered with it",
    )
    pod_cidr: _Block = Field("10.244.0.0/16", description="addresses of pods, which only the cluster knows")
    service_cidr: _Block = Field(
        "10.96.0.0/16", description="addresses of Kubernetes' services, which only the cluster knows"
    )
    uptime_sla: bool = Field(default=False, description="let Azure guarantee the API's uptime, for $0.10/h")
    system_vm_size: str = Field(
        "Standard_D4s_v5", description="VM size of the system nodes, on which everything except training runs"
    )
    system_nodes: PositiveInt = Field(2, description="number of system nodes")
    storage_account: str | None = Field(
        None,
        pattern=r"^[a-z0-9]{3,24}$",
        description="the storage account's name; derived from subscription, region and cluster when absent",
    )
    container: str = Field(
        "data",
        pattern=r"^[a-z0-9](-?[a-z0-9]){2,62}$",
        description="name of the container in the storage account",
    )
    prefix: str = Field(
        "",
        pattern=r"^([A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*)?$",
        description="the part of the container that runs use; all of it when empty",
    )
    registry: str | None = Field(
        None,
        pattern=r"^[a-zA-Z0-9]{5,50}$",
        description="the image registry's name; derived from subscription, region and cluster when absent",
    )
    registry_sku: Literal["Basic", "Standard", "Premium"] = Field(
        "Standard", description="service tier of the registry"
    )
    lustre_tib: Annotated[int, Field(ge=0)] = Field(
        0, description="size of an Azure Managed Lustre file system; none when 0"
    )
    lustre_sku: Literal[
        "AMLFS-Durable-Premium-40",
        "AMLFS-Durable-Premium-125",
        "AMLFS-Durable-Premium-250",
        "AMLFS-Durable-Premium-500",
    ] = Field(
        "AMLFS-Durable-Premium-250",
        description="service tier of the file system; the number is the MB/s for each TiB",
    )
    lustre_importer: str | None = Field(
        None,
        pattern=rf"^{_GUID}$",
        description="object id of the service principal `HPC Cache Resource Provider` in your tenant, which "
        "fills the file system from the container; the storage account then accepts its keys, as Azure needs",
    )
    service_account: str = Field(
        "cloudrec/cloudrec",
        pattern=r"^[a-z0-9-]+/[a-z0-9-]+$",
        description="namespace/name of the runs' service account",
    )
    admins: Annotated[Names, AfterValidator(_admins)] = Field(
        (),
        description="object ids of administrators beside those who run `up`: ID, group:ID or app:ID; "
        "one that is no longer listed loses the role",
    )
    capacity_reservation_group: str | None = Field(
        None,
        pattern=r"^/subscriptions/.+/providers/Microsoft\.Compute/capacityReservationGroups/[^/]+$",
        description="id of your capacity reservation group for GPU nodes",
    )
    proximity: bool = Field(default=True, description="keep the GPU nodes of one zone close together")
    max_price: Annotated[float, Field(gt=0)] | None = Field(
        None, description="most USD/h for one spot node; the on-demand price when absent"
    )
    labels: dict[str, str] = Field(default_factory=dict, description="labels on every node")

    @model_validator(mode="after")
    def _apart(self) -> Self:
        blocks = {
            name: ipaddress.IPv4Network(getattr(self, name))
            for name in ("vnet_cidr", "pod_cidr", "service_cidr")
        }
        # A packet to an address in two of the blocks would have two possible routes.
        for name, block in blocks.items():
            for other, against in blocks.items():
                if name < other and block.overlaps(against):
                    raise ValueError(f"{name} {block} and {other} {against} overlap")
        return self

    @model_validator(mode="after")
    def _valid_lustre_size(self) -> Self:
        step = LUSTRE_STEPS[self.lustre_sku]
        if self.lustre_tib % step:
            fits = -(-self.lustre_tib // step) * step
            raise ValueError(
                f"lustre_tib is {self.lustre_tib}; {self.lustre_sku} comes in steps of {step} TiB: "
                f"choose {fits}, whose price `up --dry-run` shows, or another lustre_sku"
            )
        return self

    @model_validator(mode="after")
    def _fillable(self) -> Self:
        if self.lustre_importer and not self.lustre_tib:
            raise ValueError("lustre_importer is given and lustre_tib is 0; give the file system a size")
        if self.lustre_importer and self.container == LUSTRE_LOGS:
            raise ValueError(
                f"container is {LUSTRE_LOGS}, where imports write their logs; choose another name"
            )
        return self

    @property
    def administrators(self) -> dict[str, str]:
        """Object id -> kind of principal, as role assignments name it."""
        found = [match for value in self.admins if (match := _ADMIN.fullmatch(value))]
        return {match[2].lower(): _KINDS[(match[1] or "user").lower()] for match in found}


def settings_of(cluster: ClusterSpec) -> AzureSettings:
    """Return the cluster's settings, validated; SpecError if they are invalid."""
    return validated(AzureSettings, cluster.settings, {})
