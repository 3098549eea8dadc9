"""The resource group of a cluster, and the registrations that the subscription needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypedDict, cast

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import (
    TAG_CLUSTER,
    TAG_EXPIRES,
    TAG_KEY,
    TAG_OWNER,
    Condition,
    Observed,
    Properties,
)
from cloudrec.providers.azure import zones
from cloudrec.providers.azure.api import ids, models
from cloudrec.providers.azure.api.driver import AzureDriver
from cloudrec.providers.azure.api.rows import group_name, place, state_of
from cloudrec.providers.azure.api.tracked import LocatedProperties, our_groups
from cloudrec.providers.azure.errors import object_of
from cloudrec.providers.azure.layout import TAG_PREPARED, TAG_STORAGE_ACCOUNT, TAG_ZONES
from cloudrec.providers.base.driver import is_ours, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from azure.mgmt.resource.resources.operations import ProvidersOperations, ResourceGroupsOperations

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.layout import AzureLayout

GROUP, REGISTRATION = "resource-group", "registration"
KINDS: Mapping[str, AbstractSet[str]] = {GROUP: frozenset(), REGISTRATION: frozenset()}

# Suffix of a registration -> the resource provider's namespace.
_NAMESPACES: Mapping[str, str] = {
    "alertsmanagement": "Microsoft.AlertsManagement",
    "compute": "Microsoft.Compute",
    "containerregistry": "Microsoft.ContainerRegistry",
    "containerservice": "Microsoft.ContainerService",
    "insights": "Microsoft.Insights",
    "logic": "Microsoft.Logic",
    "managedidentity": "Microsoft.ManagedIdentity",
    "monitor": "Microsoft.Monitor",
    "network": "Microsoft.Network",
    "storage": "Microsoft.Storage",
    "storagecache": "Microsoft.StorageCache",
}
_LUSTRE, LOGIC = "storagecache", "logic"
ALERTS, INSIGHTS, MONITOR = "alertsmanagement", "insights", "monitor"  # of the metrics service
METRICS = (ALERTS, INSIGHTS, MONITOR)
INFINIBAND = "aks-infiniband"  # suffix of the registration that must precede a pool with InfiniBand
_INFINIBAND_FEATURE = "Microsoft.ContainerService/AKSInfinibandSupport"
_FEATURES_VERSION = "2021-07-01"  # of the features API, which has no client in the SDK
_OF_CLUSTER = frozenset(
    {TAG_CLUSTER, TAG_OWNER, TAG_KEY, TAG_EXPIRES, TAG_ZONES, TAG_STORAGE_ACCOUNT, "Name"}
)
_STATES: Mapping[str, Condition] = {
    "Registered": Condition.READY,
    "Registering": Condition.PENDING,
    "Pending": Condition.PENDING,
}


@dataclass(frozen=True, kw_only=True)
class ResourceGroupProperties(LocatedProperties):
    """The requested properties of a cluster's resource group.

    Attributes:
        zones: the cluster's zones, as `zones.as_tag` writes them.
        expires: when the cluster ends, in ISO 8601 and UTC; empty if it has no end, None if only the workflow
            that ends it has its present end.
    """

    zones: str
    expires: str | None


@dataclass(frozen=True, kw_only=True)
class ResourceProviderProperties(Properties):
    """The requested registration for a resource provider.

    Attributes:
        namespace: the resource provider's, such as Microsoft.Network.
    """

    namespace: str

    @property
    def title(self) -> str:
        """What is registered, as Azure names it."""
        return self.namespace


@dataclass(frozen=True, kw_only=True)
class FeatureProperties(Properties):
    """The requested registration for a feature of a resource provider.

    Attributes:
        feature: the provider's namespace and the feature's name, separated by a slash.
    """

    feature: str

    @property
    def title(self) -> str:
        """What is registered, as Azure names it."""
        return self.feature


RegistrationProperties: TypeAlias = ResourceProviderProperties | FeatureProperties


class _FeatureState(TypedDict):
    state: str


class _Feature(TypedDict):
    """A feature of a resource provider, as the features API describes it."""

    properties: _FeatureState


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the resource group and the registrations."""
    return [_group(layout), *registrations(layout)]


def _group(layout: AzureLayout) -> Resource[ResourceGroupProperties]:
    return layout.resource(
        GROUP,
        properties=ResourceGroupProperties(
            location=layout.region,
            zones=zones.as_tag(layout.gpu_zones),
            expires=layout.tagged_end,
        ),
        tags={
            TAG_ZONES: zones.as_tag(layout.gpu_zones),
            **({} if layout.has_own_storage else {TAG_STORAGE_ACCOUNT: layout.account_id}),
        },
        # Deleting the group deletes everything in it, its storage account included.
        holds_data=layout.has_own_storage,
        hourly_usd=FREE,
    )


def registrations(layout: AzureLayout) -> list[Resource[RegistrationProperties]]:
    """Return the registrations that the cluster's resources need."""
    optional = {
        _LUSTRE: bool(layout.settings.lustre_tib),
        LOGIC: layout.cluster.expires is not None,
        **dict.fromkeys(METRICS, layout.has_managed_metrics),
    }
    suffixes = [name for name in _NAMESPACES if optional.get(name, True)]
    found: list[Resource[RegistrationProperties]] = [
        layout.resource(
            REGISTRATION,
            name,
            properties=ResourceProviderProperties(namespace=_NAMESPACES[name]),
            is_shared=True,
            hourly_usd=FREE,
        )
        for name in suffixes
    ]
    if any(hardware.infiniband for hardware in layout.hardware.values()):
        properties = FeatureProperties(feature=_INFINIBAND_FEATURE)
        needs = (layout.key(REGISTRATION, "containerservice"),)
        # AKS enables InfiniBand only in pools that are created after the registration.
        found.append(
            layout.resource(
                REGISTRATION, INFINIBAND, needs=needs, properties=properties, is_shared=True, hourly_usd=FREE
            )
        )
    return found


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers by kind."""
    return {GROUP: ResourceGroupDriver(azure), REGISTRATION: RegistrationDriver(azure)}


def is_free(row: models.resources.ResourceGroup) -> bool:
    """Return whether a group was prepared for a cluster, which does not exist."""
    tags = row.tags or {}
    return TAG_PREPARED in tags and TAG_CLUSTER not in tags


def needs(layout: AzureLayout, namespace: str) -> tuple[str, ...]:
    """Return the keys of the resources that every resource in the group needs.

    Args:
        layout: the cluster's.
        namespace: suffix of the resource provider's registration, such as "network".
    """
    return (layout.key(GROUP), layout.key(REGISTRATION, namespace))


class ResourceGroupDriver(AzureDriver[ResourceGroupProperties]):
    """Handles resource groups.

    One with the tag of prepared groups is its owner's: its tags of a cluster come and go, the
    group stays, with the roles that were assigned in it.
    """

    kind = GROUP
    changeable = frozenset({"zones", "expires"})
    deadline_s = 3600.0

    @property
    def calls(self) -> ResourceGroupsOperations:
        """The client's methods."""
        return self.azure.resources.resource_groups

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return the resource groups that have cloudrec's tag."""
        return [self._observe(row) for row in our_groups(self.azure) if is_ours(row.tags or {}, cluster)]

    def fetch(self, resource: Resource[ResourceGroupProperties]) -> Observed | None:
        """Return the group of this name; None if there is none, or only a prepared one without a cluster."""
        row = self.azure.get(self.calls.get, group_name(resource.tags[TAG_CLUSTER]))
        return None if row is None or is_free(row) else self._observe(row)

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the condition of a group, and why it failed."""
        row = self.azure.read(self.calls.get, ids.group_of(identity))
        if is_free(row):
            return Condition.GONE, "the prepared group has no cluster"
        return state_of(row.properties)

    def make(
        self, resource: Resource[ResourceGroupProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the group, or give the prepared one the cluster's tags."""
        del token, identities
        name = group_name(resource.tags[TAG_CLUSTER])
        row = self.azure.get(self.calls.get, name)
        kept = dict(row.tags or {}) if row is not None and is_free(row) else {}
        group = models.resources.ResourceGroup(
            location=resource.properties.location, tags={**kept, **resource.tags}
        )
        self.calls.create_or_update(name, group)
        return ids.group(self.azure.subscription, name)

    def change(
        self,
        resource: Resource[ResourceGroupProperties],
        observed: Observed,
        *,
        identities: Mapping[str, str],
    ) -> None:
        """Write the zones and the expiry into the tags; tags that cloudrec did not set stay."""
        del identities
        tags = {**observed.tags, **resource.tags}
        # Merging keeps the tag of an expiry that the specification no longer has.
        if resource.properties.expires == "":
            tags.pop(TAG_EXPIRES, None)
        patch = models.resources.ResourceGroupPatchable(tags=tags)
        self.calls.update(ids.group_of(observed.identity), patch)

    def remove(self, observed: Observed) -> None:
        """Delete the group, with all that is still in it; of a prepared one, only the cluster's tags."""
        name = ids.group_of(observed.identity)
        if TAG_PREPARED in observed.tags:
            kept = {tag: text for tag, text in observed.tags.items() if tag not in _OF_CLUSTER}
            self.calls.update(name, models.resources.ResourceGroupPatchable(tags=kept))
            return
        self.start(observed.identity, self.calls.begin_delete, name, is_removal=True)

    def _observe(self, row: models.resources.ResourceGroup) -> Observed:
        tags = dict(row.tags or {})
        condition, reason = state_of(row.properties)
        return Observed(
            kind=GROUP,
            name=name_of(tags, row.name or ""),
            identity=ids.known(ids.group(self.azure.subscription, row.name or "")),
            condition=condition,
            properties={
                "location": place(row.location),
                "zones": tags.get(TAG_ZONES, ""),
                "expires": tags.get(TAG_EXPIRES, ""),
            },
            tags=tags,
            holds_data=TAG_STORAGE_ACCOUNT not in tags,
            reason=reason,
            location=place(row.location),
            hourly_usd=FREE,
        )


class RegistrationDriver(AzureDriver[RegistrationProperties]):
    """Handles registrations of the subscription for a resource provider, or for one of its features.

    They belong to the subscription, not to the cluster, and other users may rely on them. So none is ever
    removed, and no search returns one.
    """

    kind = REGISTRATION
    deadline_s = 1800.0
    poll_s = 3.0

    def __init__(self, azure: Azure) -> None:
        super().__init__(azure)
        self._announced: set[str] = set()  # features whose resource provider must be registered once more

    @property
    def providers(self) -> ProvidersOperations:
        """The client's methods."""
        return self.azure.resources.providers

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return nothing: registrations do not belong to a cluster."""
        del cluster
        return []

    def fetch(self, resource: Resource[RegistrationProperties]) -> Observed | None:
        """Return the registration; None if the subscription is not registered."""
        identity = self._identity(resource)
        state = self._state(identity)
        if state not in _STATES:
            return None
        return Observed(
            kind=REGISTRATION,
            name=resource.name,
            identity=identity,
            condition=_STATES[state],
            tags=resource.tags,
            location="global",
            hourly_usd=FREE,
        )

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the condition of a registration, and its state in Azure's words."""
        state = self._state(identity)
        # A resource provider learns of a new feature only when it is registered again.
        if state == "Registered" and identity in self._announced:
            self.providers.register(_namespace(identity))
            self._announced.discard(identity)
        return _STATES.get(state, Condition.GONE), f"its state is {state}"

    def make(
        self, resource: Resource[RegistrationProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Register the subscription; a second call changes nothing."""
        del token, identities
        identity = self._identity(resource)
        if isinstance(resource.properties, FeatureProperties):
            self._announced.add(identity)
            self.azure.send("POST", f"{identity}/register", api_version=_FEATURES_VERSION)
        else:
            self.providers.register(resource.properties.namespace)
        return identity

    def remove(self, observed: Observed) -> None:
        """Do nothing: other users of the subscription may rely on the registration."""

    def _identity(self, resource: Resource[RegistrationProperties]) -> str:
        of = f"/subscriptions/{self.azure.subscription}/providers"
        if isinstance(resource.properties, ResourceProviderProperties):
            return f"{of}/{resource.properties.namespace}"
        namespace, _, feature = resource.properties.feature.partition("/")
        return f"{of}/Microsoft.Features/providers/{namespace}/features/{feature}"

    def _state(self, identity: str) -> str:
        if "/features/" not in identity:
            return str(self.azure.read(self.providers.get, _namespace(identity)).registration_state)
        answer = self.azure.get(self.azure.send, "GET", identity, api_version=_FEATURES_VERSION)
        if answer is None:
            return "NotRegistered"
        feature = cast("_Feature", object_of(answer))
        return feature["properties"]["state"]


def _namespace(identity: str) -> str:
    """Return the namespace of the resource provider in the identity of a registration."""
    return identity.rpartition("/providers/")[2].partition("/")[0]
