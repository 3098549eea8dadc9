"""What a cluster needs in the storage account of another cluster: a network rule, and roles on the container.

The account lets in subnets that its rules name, also those of other regions whose service endpoint is
Microsoft.Storage.Global (azure-docs, storage-network-security-virtual-networks.md). The rule is a resource of
the cluster that uses the account. The account's driver keeps it while the account's tags name that cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, TAG_OWNER, Condition, Observed, Properties
from cloudrec.providers.azure.api import ids, models
from cloudrec.providers.azure.api.driver import AzureDriver
from cloudrec.providers.azure.api.rows import place
from cloudrec.providers.azure.api.tracked import our_groups
from cloudrec.providers.azure.identity.identity import AzureScopedRoleProperties
from cloudrec.providers.azure.identity.roles import BLOB_CONTRIBUTOR, ROLES
from cloudrec.providers.azure.identity.shared_role import SharedRoleDriver
from cloudrec.providers.azure.layout import TAG_STORAGE_ACCOUNT
from cloudrec.providers.azure.network import network
from cloudrec.providers.azure.storage.storage import subnets_of
from cloudrec.providers.base.driver import is_ours, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.layout import AzureLayout

RULE, OPERATOR = "storage-rule", "storage-role"
KINDS: Mapping[str, AbstractSet[str]] = {RULE: frozenset({network.SUBNET}), OPERATOR: frozenset()}
_BETWEEN = "#"  # the account's id and the subnet's, in a rule's identity


@dataclass(frozen=True, kw_only=True)
class StorageRuleProperties(Properties):
    """The requested properties of a network rule of another cluster's storage account.

    Attributes:
        account: the account's id.
        subnet: the id of the subnet that it lets in, in lower case.
    """

    account: str
    subnet: str


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the rule, and the role of the caller on the container; nothing for a cluster with a storage."""
    if layout.has_own_storage:
        return []
    rule = layout.resource(
        RULE,
        needs=(layout.key(network.SUBNET, network.NODES),),
        properties=StorageRuleProperties(
            account=layout.account_id, subnet=network.subnet_id(layout, network.NODES).lower()
        ),
        hourly_usd=FREE,
    )
    # The caller of the other cluster is often the same, and then has the role already.
    role = layout.resource(
        OPERATOR,
        properties=AzureScopedRoleProperties(
            role=BLOB_CONTRIBUTOR,
            scope=layout.container_id,
            principal=layout.caller.object_id.lower(),
            identity="",
            principal_type=layout.caller.kind,
        ),
        is_shared=True,
        hourly_usd=FREE,
    )
    return [rule, role]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers by kind."""
    return {RULE: StorageRuleDriver(azure), OPERATOR: OperatorRoleDriver(azure)}


class OperatorRoleDriver(SharedRoleDriver):
    """Handles the role of the caller. A search finds those of cloudrec alone, by their descriptions."""

    kind = OPERATOR

    def sufficient(self, resource: Resource[AzureScopedRoleProperties]) -> frozenset[str]:
        """Return the role."""
        return frozenset({ROLES[resource.properties.role]})

    def refusal(self, resource: Resource[AzureScopedRoleProperties]) -> str:
        """Return what the caller may not do."""
        return f"the credentials may not use the data in {resource.properties.scope}"


class StorageRuleDriver(AzureDriver[StorageRuleProperties]):
    """Handles the rules. The identity is ACCOUNT#SUBNET, both ids in lower case.

    Azure replaces all rules of an account at once, and has no condition for it: a change at the same time can
    be lost. The next `up` then finds no rule, and adds it again.
    """

    kind = RULE

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return the rules for the clusters' subnets in the accounts of others."""
        groups = [row for row in our_groups(self.azure) if is_ours(row.tags or {}, cluster)]
        return [seen for row in groups for seen in self._of_group(row)]

    def _of_group(self, row: models.resources.ResourceGroup) -> list[Observed]:
        """Return the rules for the subnets of a cluster, in the account that the tags of its group name."""
        tags, group = row.tags or {}, ids.group(self.azure.subscription, row.name or "").lower()
        account = tags.get(TAG_STORAGE_ACCOUNT)
        if account is None:
            return []
        found = [subnet for subnet in self._subnets(ids.known(account)) if subnet.startswith(f"{group}/")]
        return [self._observe(account, subnet, tags, row.location or "") for subnet in found]

    def fetch(self, resource: Resource[StorageRuleProperties]) -> Observed | None:
        """Return the rule; None if the account has none for the subnet, or does not exist."""
        wanted = resource.properties
        if wanted.subnet not in self._subnets(wanted.account):
            return None
        return self._observe(wanted.account, wanted.subnet, resource.tags, "")

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY if the account has the rule, else GONE."""
        account, subnet = _parts(identity)
        return (Condition.READY if subnet in self._subnets(account) else Condition.GONE), ""

    def make(
        self, resource: Resource[StorageRuleProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Add the rule; a second call changes nothing."""
        del token, identities
        wanted = resource.properties
        self._write(wanted.account, add=wanted.subnet)
        return _identity(wanted.account, wanted.subnet)

    def remove(self, observed: Observed) -> None:
        """Remove the rule, if the account has it."""
        account, subnet = _parts(observed.identity)
        self._write(account, drop=subnet)

    def _subnets(self, account: str) -> AbstractSet[str]:
        calls = self.azure.storage.storage_accounts
        row = self.azure.get(calls.get_properties, ids.group_of(account), ids.names(account)[0])
        return frozenset() if row is None else subnets_of(row)

    def _write(self, account: str, *, add: str = "", drop: str = "") -> None:
        """Write the account's rules with one more or one less; those for deleted subnets are left out."""
        calls, group, name = self.azure.storage.storage_accounts, ids.group_of(account), ids.names(account)[0]
        row = self.azure.read(calls.get_properties, group, name)
        before = subnets_of(row)
        after = (before | {add} if add else before) - {drop}
        rules = row.network_rule_set
        if after == before or rules is None:
            return
        rules.virtual_network_rules = [
            models.storage.VirtualNetworkRule(virtual_network_resource_id=subnet, action="Allow")
            for subnet in sorted(after)
        ]
        wanted = models.storage.StorageAccountPropertiesUpdateParameters(network_rule_set=rules)
        calls.update(group, name, models.storage.StorageAccountUpdateParameters(properties=wanted))

    def _observe(self, account: str | None, subnet: str, tags: Mapping[str, str], region: str) -> Observed:
        title = tags.get(TAG_CLUSTER, "")
        own = {TAG_CLUSTER: title, TAG_OWNER: tags.get(TAG_OWNER, ""), TAG_KEY: f"{RULE}/{title}"}
        return Observed(
            kind=RULE,
            name=name_of(own, title),
            identity=_identity(account, subnet),
            condition=Condition.READY,
            tags=own,
            location=place(region),
            hourly_usd=FREE,
        )


def _identity(account: str | None, subnet: str) -> str:
    return f"{ids.known(account)}{_BETWEEN}{subnet}".lower()


def _parts(identity: str) -> tuple[str, str]:
    account, _, subnet = identity.partition(_BETWEEN)
    return account, subnet
