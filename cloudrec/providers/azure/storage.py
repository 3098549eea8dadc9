"""The storage account and the container in it that hold data, checkpoints and results: private, no keys."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import is_ours
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Difference, Observed
from cloudrec.providers.azure import groups, ids, network
from cloudrec.providers.azure.rows import group_name, group_names, inherited, place, plain
from cloudrec.providers.azure.tracked import GroupDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.driver import AzureDriver
    from cloudrec.providers.azure.layout import Layout

ACCOUNT, CONTAINER = "storage-account", "container"
KINDS: Mapping[str, AbstractSet[str]] = {
    ACCOUNT: frozenset({groups.GROUP, groups.REGISTRATION, network.SUBNET}),
    CONTAINER: frozenset({ACCOUNT}),
}

_SMALLEST_RANGE = 30  # prefix length; what is smaller is told as single addresses
_GONE_RULE = "NetworkSourceDeleted"  # a rule whose subnet went: it names the next one of that name no more
_METADATA = "cloudrec"  # the key under which a container tells that it is ours
# The account as the SDK's models name it; what can only be decided at birth stands first.
_FIXED: Mapping[str, object] = {"is_hns_enabled": True}
_SECURE: Mapping[str, object] = {
    "allow_blob_public_access": False,
    "allow_shared_key_access": False,
    "allow_cross_tenant_replication": False,
    "default_to_o_auth_authentication": True,
    "enable_https_traffic_only": True,
    "minimum_tls_version": "TLS1_2",
    "public_network_access": "Enabled",  # as far as the network's rules allow
}


def resources(layout: Layout) -> list[Resource]:
    """Describe the account and its container."""
    suffixes = [network.NODES, *([network.LUSTRE] if layout.settings.lustre_tib else [])]
    account = layout.resource(
        ACCOUNT,
        needs=(*groups.needs(layout, "storage"), *layout.keys(network.SUBNET, suffixes)),
        properties={
            "location": layout.region,
            "account": layout.storage_account,
            **_FIXED,
            **_SECURE,
            "subnets": tuple(sorted(network.subnet_id(layout, suffix).lower() for suffix in suffixes)),
            "addresses": _addresses(layout.settings.public_access_cidrs),
        },
        holds_data=True,
    )
    container = layout.resource(
        CONTAINER,
        needs=(account.key,),
        properties={
            "account": layout.storage_account,
            "container": layout.settings.container,
            "soft_delete": False,
        },
        holds_data=True,
    )
    return [account, container]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers by kind."""
    return {ACCOUNT: AccountDriver(azure), CONTAINER: ContainerDriver(azure)}


def _addresses(blocks: Sequence[str]) -> tuple[str, ...]:
    """Return blocks as the storage's firewall takes them: ranges, and the smallest as single addresses."""
    told: set[str] = set()
    for block in map(ipaddress.IPv4Network, blocks):
        is_range = block.prefixlen <= _SMALLEST_RANGE
        told |= {str(block)} if is_range else {str(address) for address in block}
    return tuple(sorted(told))


class AccountDriver(GroupDriver):
    """Handles storage accounts."""

    kind = ACCOUNT
    service, collection, of_type = "storage", "storage_accounts", "Microsoft.Storage/storageAccounts"
    listing, getting = "list_by_resource_group", "get_properties"
    putting, deleting = "begin_create", "delete"
    holds_data = True
    changeable = frozenset({*_SECURE, "subnets", "addresses"})

    def named(self, resource: Resource) -> str:
        """Return the account's name."""
        return str(resource.properties["account"])

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return an account that is reached from the nodes' subnet, and with Entra ID's tokens alone."""
        del identities
        return self.models.StorageAccountCreateParameters(
            location=resource.properties["location"],
            tags=dict(resource.tags),
            kind="StorageV2",
            sku=self.models.Sku(name="Standard_LRS"),
            network_rule_set=self._rules(resource),
            **_FIXED,
            **_SECURE,
        )

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Close what was opened, and let in who must be."""
        del identities
        wanted = self.models.StorageAccountUpdateParameters(network_rule_set=self._rules(resource), **_SECURE)
        self.call(
            observed.identity,
            "update",
            ids.group_of(observed.identity),
            *ids.names(observed.identity),
            wanted,
        )

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's model
        """Tell what is open, and to whom."""
        rules = row.network_rule_set
        subnets = (rules.virtual_network_rules if rules else None) or ()
        told = {name: plain(getattr(row, name)) for name in (*_FIXED, *_SECURE)}
        told["public_network_access"] = told["public_network_access"] or "Enabled"
        is_closed = bool(rules) and plain(rules.default_action) == "Deny"
        return {
            **told,
            "subnets": tuple(
                sorted(
                    rule.virtual_network_resource_id.lower()
                    for rule in subnets
                    if plain(rule.state) != _GONE_RULE
                )
            ),
            "addresses": tuple(sorted(rule.ip_address_or_range for rule in rules.ip_rules or ()))
            if is_closed
            else ("anybody",),
        }

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Tell what is open that should not be; ids of subnets would tell nobody anything."""
        found = super().difference(resource, observed)
        if found is None or "subnets" not in found.reason:
            return found
        return Difference(reason="the network's rules are not as asked for", in_place=found.in_place)

    def _rules(self, resource: Resource) -> Any:  # noqa: ANN401 - the SDK's model
        models, wanted = self.models, resource.properties
        return models.NetworkRuleSet(
            default_action="Deny",
            bypass="None",
            virtual_network_rules=[
                models.VirtualNetworkRule(virtual_network_resource_id=subnet, action="Allow")
                for subnet in wanted["subnets"]
            ],
            ip_rules=[
                models.IPRule(ip_address_or_range=address, action="Allow") for address in wanted["addresses"]
            ],
        )


class ContainerDriver(GroupDriver):
    """Handles containers, which bear no tags: one that is ours says so in its metadata, its account whose.

    Deleted data goes at once: what a run overwrites in a day may be more than what it keeps.
    """

    kind = CONTAINER
    service, collection = "storage", "blob_containers"
    of_type = "Microsoft.Storage/storageAccounts/blobServices/containers"
    putting, deleting = "create", "delete"
    holds_data = True
    changeable = frozenset({"soft_delete"})
    poll_s = 1.0

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List what is ours in the clusters' accounts."""
        accounts = self.azure.client("storage").storage_accounts
        rows = [
            row
            for group in group_names(self.azure, cluster)
            for row in self.azure.rows(accounts.list_by_resource_group, group)
            if is_ours(row.tags or {}, cluster)
        ]
        return [
            self._within(account, row)
            for account in rows
            for row in self.azure.rows(self.calls.list, ids.group_of(account.id), account.name)
            if _METADATA in (row.metadata or {})
        ]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look for it in its account, and whether what is deleted there goes at once."""
        group, name = group_name(resource.tags[TAG_CLUSTER]), resource.properties["account"]
        account = self.azure.get(self.azure.client("storage").storage_accounts.get_properties, group, name)
        row = None
        if account is not None:
            row = self.azure.get(self.calls.get, group, name, resource.properties["container"])
        if row is None:
            return None
        services = self.azure.client("storage").blob_services
        return self._within(account, row, self.azure.read(services.get_service_properties, group, name))

    def row(self, identity: str) -> Any:  # noqa: ANN401 - the SDK's model
        """Read it by its identity."""
        account, _, name = ids.names(identity)
        return self.azure.read(self.calls.get, ids.group_of(identity), account, name)

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return a container that nobody reads without logging in, and that says whose it is."""
        del identities
        return self.models.BlobContainer(public_access="None", metadata={_METADATA: resource.key})

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create it; a second time, nothing changes."""
        del token
        group, wanted = group_name(resource.tags[TAG_CLUSTER]), resource.properties
        self.calls.create(group, wanted["account"], wanted["container"], self.body(resource, identities))
        return ids.resource(
            self.azure.subscription, group, self.of_type, wanted["account"], "default", wanted["container"]
        )

    def complete(self, resource: Resource, identity: str, *, identities: Mapping[str, str]) -> None:
        """Let what is deleted go at once."""
        del identities
        keep_nothing = self.models.DeleteRetentionPolicy(enabled=False)
        wanted = self.models.BlobServiceProperties(
            delete_retention_policy=keep_nothing, container_delete_retention_policy=keep_nothing
        )
        services = self.azure.client("storage").blob_services
        services.set_service_properties(ids.group_of(identity), resource.properties["account"], wanted)

    def drop(self, identity: str) -> None:
        """Delete it with all that is in it."""
        account, _, name = ids.names(identity)
        self.calls.delete(ids.group_of(identity), account, name)

    def _within(self, account: Any, row: Any, service: Any = None) -> Observed:  # noqa: ANN401 - the SDK's models
        tags = dict(account.tags or {})
        key = (row.metadata or {}).get(_METADATA, "")
        soft = {} if service is None else {"soft_delete": _keeps(service)}
        return Observed(
            kind=CONTAINER,
            name=key.partition("/")[2] or row.name,
            identity=ids.resource(
                self.azure.subscription, ids.group_of(row.id), self.of_type, *ids.names(row.id)
            ),
            condition=Condition.READY,
            properties=soft,
            tags=inherited(tags, key) if key and TAG_CLUSTER in tags else {},
            holds_data=True,
            location=place(account.location),
        )


def _keeps(service: Any) -> bool:  # noqa: ANN401 - the SDK's model
    """Tell whether an account keeps what is deleted."""
    policies = (service.delete_retention_policy, service.container_delete_retention_policy)
    return any(policy is not None and bool(policy.enabled) for policy in policies)
