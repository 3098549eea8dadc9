"""The storage account and its container for data, checkpoints and results.

The account is closed to other networks and accepts no account keys, only Entra ID's tokens; unless Managed
Lustre is filled from it, which needs the keys (azure-managed-lustre, amlfs-prerequisites.md).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from cloudrec.engine.cost import BY_USE
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Difference, Observed, Properties
from cloudrec.providers.azure import groups
from cloudrec.providers.azure.api import ids, models
from cloudrec.providers.azure.api.rows import group_name, inherited, place, plain
from cloudrec.providers.azure.api.tracked import (
    Calls,
    GroupDriver,
    LocatedProperties,
    TrackedCalls,
    TrackedDriver,
    group_names,
)
from cloudrec.providers.azure.layout import ACCOUNT_TYPE
from cloudrec.providers.azure.network import network
from cloudrec.providers.azure.settings import LUSTRE_LOGS
from cloudrec.providers.base.driver import is_ours
from cloudrec.providers.base.storage import sharing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.api.driver import AzureDriver
    from cloudrec.providers.azure.layout import AzureLayout
    from cloudrec.spec.models import SharedStorageSpec

ACCOUNT, CONTAINER = "storage-account", "container"
LOGS = "lustre-logs"  # the suffix of the container for the logs of imports
KINDS: Mapping[str, AbstractSet[str]] = {
    ACCOUNT: frozenset({groups.GROUP, groups.REGISTRATION, network.SUBNET}),
    CONTAINER: frozenset({ACCOUNT}),
}

_SMALLEST_RANGE = 30  # prefix length; Azure refuses smaller ranges, which are listed as single addresses
# The state of a rule whose subnet was deleted. It does not let in a new subnet of the same name.
_GONE_RULE = "NetworkSourceDeleted"
_METADATA = "cloudrec"  # the key that marks a container as cloudrec's


class _Secure(TypedDict):
    """The settings of an account that can be changed, as the SDK's models name them."""

    allow_blob_public_access: bool
    allow_shared_key_access: bool
    allow_cross_tenant_replication: bool
    default_to_o_auth_authentication: bool
    enable_https_traffic_only: bool
    minimum_tls_version: str
    public_network_access: str


_SECURE = _Secure(
    allow_blob_public_access=False,
    allow_shared_key_access=False,
    allow_cross_tenant_replication=False,
    default_to_o_auth_authentication=True,
    enable_https_traffic_only=True,
    minimum_tls_version="TLS1_2",
    public_network_access="Enabled",  # limited by the network rules
)


@dataclass(frozen=True, kw_only=True)
class AzureAccountProperties(LocatedProperties):
    """The requested properties of a storage account.

    Attributes:
        account: its name in Azure.
        is_hns_enabled: whether directories are real, and renamed at once; decided when it is created.
        allow_blob_public_access: whether a container may be readable without a login.
        allow_shared_key_access: whether the account's keys are accepted.
        allow_cross_tenant_replication: whether its blobs may be replicated to another tenant.
        default_to_o_auth_authentication: whether the portal uses the person's login instead of a key.
        enable_https_traffic_only: whether HTTP is refused.
        minimum_tls_version: the oldest accepted version of TLS, as Azure writes it.
        public_network_access: "Enabled" lets in `subnets` and `addresses`, "Disabled" neither.
        subnets: ids of the subnets that are let in, in lower case and sorted.
        addresses: the addresses and ranges that are let in, as strings and sorted.
    """

    account: str
    is_hns_enabled: bool
    allow_blob_public_access: bool
    allow_shared_key_access: bool
    allow_cross_tenant_replication: bool
    default_to_o_auth_authentication: bool
    enable_https_traffic_only: bool
    minimum_tls_version: str
    public_network_access: str
    subnets: tuple[str, ...]
    addresses: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BlobContainerProperties(Properties):
    """The requested properties of a container.

    Attributes:
        account: the name of the storage account that it is in.
        container: its name.
        soft_delete: whether the account keeps deleted data for some days.
    """

    account: str
    container: str
    soft_delete: bool = False


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the account and its container; nothing for a cluster whose runs use those of another one."""
    if not layout.has_own_storage:
        return []
    suffixes = [network.NODES, *([network.LUSTRE] if layout.settings.lustre_tib else [])]
    account = layout.resource(
        ACCOUNT,
        needs=(*groups.needs(layout, "storage"), *layout.keys(network.SUBNET, suffixes)),
        properties=AzureAccountProperties(
            location=layout.region,
            account=layout.storage_account,
            is_hns_enabled=True,
            **_secure(has_keys=bool(layout.settings.lustre_importer)),
            subnets=tuple(sorted(network.subnet_id(layout, suffix).lower() for suffix in suffixes)),
            addresses=_addresses(layout.cluster.access_blocks),
        ),
        holds_data=True,
        hourly_usd=BY_USE,
    )
    names = {"": layout.settings.container}
    if layout.settings.lustre_importer:
        names[LOGS] = LUSTRE_LOGS
    containers = [
        layout.resource(
            CONTAINER,
            suffix,
            needs=(account.key,),
            properties=BlobContainerProperties(account=layout.storage_account, container=name),
            holds_data=True,
            hourly_usd=BY_USE,
        )
        for suffix, name in names.items()
    ]
    return [account, *containers]


def _secure(*, has_keys: bool) -> _Secure:
    """Return the settings about access; Managed Lustre reads a container by a token made of the keys."""
    return {**_SECURE, "allow_shared_key_access": has_keys}


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers by kind."""
    return {ACCOUNT: AzureAccountDriver(azure), CONTAINER: ContainerDriver(azure)}


def _addresses(blocks: Sequence[str]) -> tuple[str, ...]:
    """Return blocks in the form of the account's IP rules: ranges, and small blocks as single addresses."""
    found: set[str] = set()
    for block in map(ipaddress.IPv4Network, blocks):
        is_range = block.prefixlen <= _SMALLEST_RANGE
        found |= {str(block)} if is_range else {str(address) for address in block}
    return tuple(sorted(found))


class AzureAccountDriver(TrackedDriver["models.storage.StorageAccount", AzureAccountProperties]):
    """Handles storage accounts."""

    kind = ACCOUNT
    charge = BY_USE
    of_type = ACCOUNT_TYPE
    holds_data = True
    changeable = frozenset({*_SECURE, "subnets", "addresses"})

    @property
    def calls(self) -> TrackedCalls[models.storage.StorageAccount]:
        """The client's methods for this kind. Accounts are created by `put` and changed by `update`."""
        of = self.azure.storage.storage_accounts
        return TrackedCalls(
            list=of.list_by_resource_group,
            get=of.get_properties,
            put=of.begin_create,
            delete=of.delete,
            deletes_at_once=True,
        )

    def named(self, resource: Resource[AzureAccountProperties]) -> str:
        """Return the account's name."""
        return resource.properties.account

    def body(
        self, resource: Resource[AzureAccountProperties], identities: Mapping[str, str]
    ) -> models.storage.StorageAccountCreateParameters:
        """Return an account that admits the nodes' subnet, and only Entra ID's tokens."""
        del identities
        return models.storage.StorageAccountCreateParameters(
            location=resource.properties.location,
            tags=dict(resource.tags),
            kind="StorageV2",
            sku=models.storage.Sku(name="Standard_LRS"),
            properties=models.storage.StorageAccountPropertiesCreateParameters(
                network_rule_set=_rules(resource.properties),
                is_hns_enabled=True,
                **_secure(has_keys=resource.properties.allow_shared_key_access),
            ),
        )

    def change(
        self, resource: Resource[AzureAccountProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Set the settings and the network rules to the requested ones; clusters that use it stay let in."""
        del identities
        users = subnets_of_users(self.row(observed.identity))
        # An update changes only the settings that it has.
        wanted = models.storage.StorageAccountPropertiesUpdateParameters(
            network_rule_set=_rules(resource.properties, users),
            **_secure(has_keys=resource.properties.allow_shared_key_access),
        )
        self.azure.storage.storage_accounts.update(
            ids.group_of(observed.identity),
            ids.names(observed.identity)[0],
            models.storage.StorageAccountUpdateParameters(properties=wanted),
        )

    def properties(self, row: models.storage.StorageAccount) -> Mapping[str, Any]:
        """Return the settings that decide about access, and the admitted subnets and addresses."""
        # Without the default action Deny, the listed addresses are not a limit.
        rules = row.network_rule_set
        return {
            "is_hns_enabled": row.is_hns_enabled,
            "allow_blob_public_access": row.allow_blob_public_access,
            "allow_shared_key_access": row.allow_shared_key_access,
            "allow_cross_tenant_replication": row.allow_cross_tenant_replication,
            "default_to_o_auth_authentication": row.default_to_o_auth_authentication,
            "enable_https_traffic_only": row.enable_https_traffic_only,
            "minimum_tls_version": plain(row.minimum_tls_version),
            "public_network_access": plain(row.public_network_access) or "Enabled",
            "subnets": tuple(sorted(subnets_of(row) - subnets_of_users(row))),
            "addresses": tuple(sorted(rule.ip_address_or_range or "" for rule in rules.ip_rules or ()))
            if rules and plain(rules.default_action) == "Deny"
            else ("anyone",),
        }

    def difference(self, resource: Resource[AzureAccountProperties], observed: Observed) -> Difference | None:
        """Compare the properties; a difference in the network rules is reported without the subnets' ids."""
        found = super().difference(resource, observed)
        if found is None or "subnets" not in found.reason:
            return found
        return Difference(reason="the network rules differ from the requested ones", in_place=found.in_place)


def subnets_of(row: models.storage.StorageAccount) -> frozenset[str]:
    """Return the ids of the subnets that an account lets in, in lower case."""
    rules = (row.network_rule_set.virtual_network_rules if row.network_rule_set else None) or ()
    return frozenset(
        rule.virtual_network_resource_id.lower() for rule in rules if plain(rule.state) != _GONE_RULE
    )


def subnets_of_users(row: models.storage.StorageAccount) -> frozenset[str]:
    """Return those that are of other clusters which use the account; its tags name these clusters."""
    there = ids.subscription_of(row.id)
    users = tuple(
        f"{ids.group(there, group_name(user))}/".lower() for user in sharing.users_of(row.tags or {})
    )
    return frozenset(subnet for subnet in subnets_of(row) if subnet.startswith(users))


def set_user(azure: Azure, shared: SharedStorageSpec, cluster: str, region: str | None) -> None:
    """Tag an account with another cluster that uses it; without a region, remove that tag.

    Azure replaces all tags at once, and has no condition for it: a change at the same time can be lost. `up`
    of the other cluster writes the tag again.
    """
    calls = azure.storage.storage_accounts
    group, name = group_name(shared.cluster), shared.account
    row = azure.get(calls.get_properties, group, name)
    if row is None:
        return
    before = dict(row.tags or {})
    after = sharing.with_user(before, cluster, region)
    if after != before:
        change = models.storage.StorageAccountUpdateParameters(tags=after)
        azure.read(lambda: calls.update(group, name, change))  # the same change twice is as one


def _rules(
    wanted: AzureAccountProperties, users: AbstractSet[str] = frozenset()
) -> models.storage.NetworkRuleSet:
    return models.storage.NetworkRuleSet(
        default_action="Deny",
        # By default Azure lets its own services past the rules.
        bypass="None",
        virtual_network_rules=[
            models.storage.VirtualNetworkRule(virtual_network_resource_id=subnet, action="Allow")
            for subnet in sorted({*wanted.subnets, *users})
        ],
        ip_rules=[
            models.storage.IPRule(ip_address_or_range=address, action="Allow") for address in wanted.addresses
        ],
    )


class ContainerDriver(GroupDriver["models.storage.BlobContainer", BlobContainerProperties]):
    """Handles containers. They have no tags; one of cloudrec's has its key in the metadata.

    The account must not keep deleted data: a run may overwrite more in a day than it keeps.
    """

    kind = CONTAINER
    of_type = "Microsoft.Storage/storageAccounts/blobServices/containers"
    holds_data = True
    changeable = frozenset({"soft_delete"})
    poll_s = 1.0

    @property
    def calls(self) -> Calls[models.storage.BlobContainer]:
        """The client's methods for this kind."""
        of = self.azure.storage.blob_containers
        return Calls(get=of.get, put=of.create, delete=of.delete, puts_at_once=True, deletes_at_once=True)

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return cloudrec's containers in the clusters' accounts."""
        accounts = self.azure.storage.storage_accounts
        rows = [
            row
            for group in group_names(self.azure, cluster)
            for row in self.azure.rows(accounts.list_by_resource_group, group)
            if is_ours(row.tags or {}, cluster)
        ]
        return [
            self._within(account, row)
            for account in rows
            for row in self.azure.rows(
                self.azure.storage.blob_containers.list, ids.group_of(account.id), account.name or ""
            )
            if _METADATA in (row.metadata or {})
        ]

    def fetch(self, resource: Resource[BlobContainerProperties]) -> Observed | None:
        """Return the container, with whether its account keeps deleted data; None if there is none."""
        group, name = group_name(resource.tags[TAG_CLUSTER]), resource.properties.account
        account = self.azure.get(self.azure.storage.storage_accounts.get_properties, group, name)
        row = None
        if account is not None:
            row = self.azure.get(self.calls.get, group, name, resource.properties.container)
        if account is None or row is None:
            return None
        # Only a comparison needs the account's deletion policy, which takes another call; a search leaves it
        # out.
        services = self.azure.storage.blob_services
        return self._within(account, row, self.azure.read(services.get_service_properties, group, name))

    def row(self, identity: str) -> models.storage.BlobContainer:
        """Return the SDK's model of a container."""
        # The middle name is that of the blob service, which is always "default" and not an argument.
        account, _, name = ids.names(identity)
        return self.azure.read(self.calls.get, ids.group_of(identity), account, name)

    def body(
        self, resource: Resource[BlobContainerProperties], identities: Mapping[str, str]
    ) -> models.storage.BlobContainer:
        """Return a container without public access, and with its key in the metadata."""
        del identities
        return models.storage.BlobContainer(
            container_properties=models.storage.ContainerProperties(
                public_access="None", metadata={_METADATA: resource.key}
            )
        )

    def make(
        self, resource: Resource[BlobContainerProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the container; a second call changes nothing."""
        del token
        group, wanted = group_name(resource.tags[TAG_CLUSTER]), resource.properties
        create = self.azure.storage.blob_containers.create
        create(group, wanted.account, wanted.container, self.body(resource, identities))
        return ids.resource(
            self.azure.subscription, group, self.of_type, wanted.account, "default", wanted.container
        )

    def complete(
        self, resource: Resource[BlobContainerProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Let the account delete data at once instead of keeping it for some days."""
        del identities
        keep_nothing = models.storage.DeleteRetentionPolicy(enabled=False)
        wanted = models.storage.BlobServiceProperties(
            blob_service_properties=models.storage.BlobServicePropertiesProperties(
                delete_retention_policy=keep_nothing, container_delete_retention_policy=keep_nothing
            )
        )
        services = self.azure.storage.blob_services
        services.set_service_properties(ids.group_of(identity), resource.properties.account, wanted)

    def drop(self, identity: str) -> None:
        """Delete the container with all its data."""
        account, _, name = ids.names(identity)
        self.calls.delete(ids.group_of(identity), account, name)

    def _within(
        self,
        account: models.storage.StorageAccount,
        row: models.storage.BlobContainer | models.storage.ListContainerItem,
        service: models.storage.BlobServiceProperties | None = None,
    ) -> Observed:
        tags = dict(account.tags or {})
        key = (row.metadata or {}).get(_METADATA, "")
        soft = {} if service is None else {"soft_delete": _keeps(service)}
        return Observed(
            kind=CONTAINER,
            name=key.partition("/")[2] or row.name or "",
            identity=self.identity_of(row.id),
            condition=Condition.READY,
            properties=soft,
            tags=inherited(tags, key) if key and TAG_CLUSTER in tags else {},
            holds_data=True,
            location=place(account.location),
            hourly_usd=BY_USE,
        )


def _keeps(service: models.storage.BlobServiceProperties) -> bool:
    """Return whether an account keeps deleted blobs or containers for some days."""
    policies = (service.delete_retention_policy, service.container_delete_retention_policy)
    return any(policy is not None and bool(policy.enabled) for policy in policies)
