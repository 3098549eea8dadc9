"""The resource group that holds everything of a cluster, and what the subscription must be registered for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import is_ours, name_of
from cloudrec.engine.graph import TAG_CLUSTER, TAG_EXPIRES, Condition, Observed
from cloudrec.providers.azure import ids, zones
from cloudrec.providers.azure.driver import AzureDriver
from cloudrec.providers.azure.layout import TAG_ZONES
from cloudrec.providers.azure.rows import group_name, our_groups, place, state_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.layout import Layout

GROUP, REGISTRATION = "resource-group", "registration"
KINDS: Mapping[str, AbstractSet[str]] = {GROUP: frozenset(), REGISTRATION: frozenset()}

# Suffix of a registration -> the resource provider's namespace.
_NAMESPACES: Mapping[str, str] = {
    "compute": "Microsoft.Compute",
    "containerregistry": "Microsoft.ContainerRegistry",
    "containerservice": "Microsoft.ContainerService",
    "managedidentity": "Microsoft.ManagedIdentity",
    "network": "Microsoft.Network",
    "storage": "Microsoft.Storage",
    "storagecache": "Microsoft.StorageCache",
}
_LUSTRE = "storagecache"
INFINIBAND = "aks-infiniband"  # the suffix of the registration that nodes with InfiniBand need
_INFINIBAND_FEATURE = "Microsoft.ContainerService/AKSInfinibandSupport"
_FEATURES_VERSION = "2021-07-01"  # of the API of features, for which there is no client
_STATES: Mapping[str, Condition] = {
    "Registered": Condition.READY,
    "Registering": Condition.PENDING,
    "Pending": Condition.PENDING,
}


def resources(layout: Layout) -> list[Resource]:
    """Describe the group, and the registrations."""
    group = layout.resource(
        GROUP,
        properties={
            "location": layout.region,
            "zones": zones.as_tag(layout.gpu_zones),
            "expires": layout.cluster.expires or "",
        },
        tags={TAG_ZONES: zones.as_tag(layout.gpu_zones)},
        holds_data=True,  # with it, all that is in it would go
    )
    suffixes = [name for name in _NAMESPACES if name != _LUSTRE or layout.settings.lustre_tib]
    registrations = [
        layout.resource(REGISTRATION, name, properties={"namespace": _NAMESPACES[name]}, is_shared=True)
        for name in suffixes
    ]
    if any(hardware.infiniband for hardware in layout.hardware.values()):
        properties = {"feature": _INFINIBAND_FEATURE}
        needs = (layout.key(REGISTRATION, "containerservice"),)
        registrations.append(
            layout.resource(REGISTRATION, INFINIBAND, needs=needs, properties=properties, is_shared=True)
        )
    return [group, *registrations]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers by kind."""
    return {GROUP: ResourceGroupDriver(azure), REGISTRATION: RegistrationDriver(azure)}


def needs(layout: Layout, namespace: str) -> tuple[str, ...]:
    """Return the keys of what everything in the group needs.

    Args:
        layout: the cluster's.
        namespace: whose resource it is, such as "network".
    """
    return (layout.key(GROUP), layout.key(REGISTRATION, namespace))


class ResourceGroupDriver(AzureDriver):
    """Handles resource groups."""

    kind = GROUP
    changeable = frozenset({"zones", "expires"})
    deadline_s = 3600.0

    @property
    def calls(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The client's methods."""
        return self.azure.client("resources").resource_groups

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List by the tag."""
        return [self._observe(row) for row in our_groups(self.azure) if is_ours(row.tags or {}, cluster)]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look it up by its name."""
        row = self.azure.get(self.calls.get, group_name(resource.tags[TAG_CLUSTER]))
        return None if row is None else self._observe(row)

    def look(self, identity: str) -> tuple[Condition, str]:
        """Read it by its name."""
        return state_of(self.azure.read(self.calls.get, ids.group_of(identity)).properties)

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create it."""
        del token, identities
        name = group_name(resource.tags[TAG_CLUSTER])
        models = self.azure.models("resources")
        group = models.ResourceGroup(location=resource.properties["location"], tags=dict(resource.tags))
        self.calls.create_or_update(name, group)
        return ids.group(self.azure.subscription, name)

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Write down the zones and the end; tags of other people stay."""
        del identities
        tags = {**observed.tags, **resource.tags}
        if not resource.properties["expires"]:
            tags.pop(TAG_EXPIRES, None)
        models = self.azure.models("resources")
        self.calls.update(ids.group_of(observed.identity), models.ResourceGroupPatchable(tags=tags))

    def remove(self, observed: Observed) -> None:
        """Delete it, with whatever is still in it."""
        name = ids.group_of(observed.identity)
        self.begin(observed.identity, self.calls.begin_delete, name, is_removal=True)

    def _observe(self, row: Any) -> Observed:  # noqa: ANN401 - the SDK's model
        tags = dict(row.tags or {})
        condition, reason = state_of(row.properties)
        return Observed(
            kind=GROUP,
            name=name_of(tags, row.name),
            identity=ids.group(self.azure.subscription, row.name),
            condition=condition,
            properties={
                "location": place(row.location),
                "zones": tags.get(TAG_ZONES, ""),
                "expires": tags.get(TAG_EXPIRES, ""),
            },
            tags=tags,
            holds_data=True,
            reason=reason,
            location=place(row.location),
        )


class RegistrationDriver(AzureDriver):
    """Handles registrations of the subscription for a resource provider, or for one of its features.

    They are the subscription's and not the cluster's: others may rely on them, so none is ever taken back,
    and no search shows them.
    """

    kind = REGISTRATION
    deadline_s = 1800.0
    poll_s = 5.0

    def __init__(self, azure: Azure) -> None:
        super().__init__(azure)
        self._told: set[str] = set()  # features whose provider is still to be told

    @property
    def providers(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The client's methods."""
        return self.azure.client("resources").providers

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Show none."""
        del cluster
        return []

    def fetch(self, resource: Resource) -> Observed | None:
        """Look whether the subscription is registered."""
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
        )

    def look(self, identity: str) -> tuple[Condition, str]:
        """Look how far it has come; a feature is known to its provider once that is registered again."""
        state = self._state(identity)
        if state == "Registered" and identity in self._told:
            self.providers.register(_namespace(identity))
            self._told.discard(identity)
        return _STATES.get(state, Condition.GONE), f"its state is {state}"

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Register; a second time, nothing changes."""
        del token, identities
        identity = self._identity(resource)
        if "feature" in resource.properties:
            self._told.add(identity)
            self.azure.send("POST", f"{identity}/register", api_version=_FEATURES_VERSION)
        else:
            self.providers.register(resource.properties["namespace"])
        return identity

    def remove(self, observed: Observed) -> None:
        """Leave it."""

    def _identity(self, resource: Resource) -> str:
        of = f"/subscriptions/{self.azure.subscription}/providers"
        if "feature" not in resource.properties:
            return f"{of}/{resource.properties['namespace']}"
        namespace, _, feature = resource.properties["feature"].partition("/")
        return f"{of}/Microsoft.Features/providers/{namespace}/features/{feature}"

    def _state(self, identity: str) -> str:
        if "/features/" not in identity:
            return str(self.azure.read(self.providers.get, _namespace(identity)).registration_state)
        answer = self.azure.get(self.azure.send, "GET", identity, api_version=_FEATURES_VERSION)
        return "NotRegistered" if answer is None else str(answer.json()["properties"]["state"])


def _namespace(identity: str) -> str:
    """Return the resource provider that a registration, or a feature's, is of."""
    return identity.rpartition("/providers/")[2].partition("/")[0]
