"""What a cluster's controllers made and left: no resource of ours, but it costs, and blocks what is.

They are looked for by LeftoversDriver, in the cluster's resource group and in the one that AKS makes for the
nodes, and only once the cluster is gone: before, they are its users'.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.azure import aks, ids
from cloudrec.providers.azure.driver import AzureDriver
from cloudrec.providers.azure.rows import group_name, place, state_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.client import Azure

NODE_GROUP, STRAY = "node-resource-group", "stray"
SUFFIX = "-nodes"  # of the name of AKS's own resource group, after that of the cluster's
# The types that controllers make, in the order in which they go: the first keep the later ones.
_TYPES: tuple[tuple[str, str], ...] = (
    ("microsoft.network/loadbalancers", "load-balancer"),
    ("microsoft.network/privateendpoints", "private-endpoint"),
    ("microsoft.network/networkinterfaces", ""),
    ("microsoft.network/publicipaddresses", "public-ip"),
    ("microsoft.network/privatednszones/virtualnetworklinks", ""),
    ("microsoft.network/privatednszones", "private-dns-zone"),
    ("microsoft.compute/disks", ""),
    ("microsoft.compute/snapshots", ""),
    ("microsoft.operationsmanagement/solutions", ""),
    ("microsoft.operationalinsights/workspaces", "log-analytics-workspace"),
)
_ORDER = {of_type: index for index, (of_type, _) in enumerate(_TYPES)}
_PRICES = dict(_TYPES)
_DISK = "microsoft.compute/disks"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a cluster's leftovers may be.

    Attributes:
        title: the cluster's name with us.
    """

    title: str

    @property
    def group(self) -> str:
        """The cluster's resource group."""
        return group_name(self.title)

    @property
    def node_group(self) -> str:
        """The resource group that AKS makes, and removes with the cluster."""
        return f"{self.group}{SUFFIX}"


class StrayDriver(AzureDriver):
    """Handles one kind of leftovers. They are never made here."""

    deadline_s = 1800.0

    @abstractmethod
    def left(self, where: Place) -> Sequence[Observed]:
        """List what a cluster that is gone left there."""

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """LeftoversDriver looks for all kinds at once, where the cluster is gone."""
        del cluster
        return ()

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """No resource is of this kind."""
        del token, identities
        raise AssertionError(f"{resource.key}: a leftover is never asked for")

    def observe(
        self,
        where: Place,
        row: Any,  # noqa: ANN401 - the SDK's model
        identity: str,
        state: Condition,
        hourly_usd: float = 0.0,
    ) -> Observed:
        """Tell of one what the engine wants to know."""
        return Observed(
            kind=self.kind,
            name=f"{where.title}/{row.name}",
            identity=identity,
            condition=state,
            tags={TAG_CLUSTER: where.title},
            hourly_usd=hourly_usd,
            location=place(row.location),
        )


class NodeGroupDriver(StrayDriver):
    """Handles AKS's own resource groups that outlived their clusters, with all that is in them."""

    kind = NODE_GROUP

    @property
    def groups(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The calls about resource groups."""
        return self.azure.client("resources").resource_groups

    def left(self, where: Place) -> Sequence[Observed]:
        """Look the name up."""
        row = self.azure.get(self.groups.get, where.node_group)
        if row is None or not is_of_aks(row):
            return []
        identity = ids.group(self.azure.subscription, where.node_group)
        return [self.observe(where, row, identity, state_of(row.properties)[0])]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Look the name up."""
        return state_of(self.azure.read(self.groups.get, identity.rpartition("/")[2]).properties)

    def remove(self, observed: Observed) -> None:
        """Delete it, and what is in it."""
        name = observed.identity.rpartition("/")[2]
        self.begin(observed.identity, self.groups.begin_delete, name, is_removal=True)


class StrayResourceDriver(StrayDriver):
    """Handles what controllers made in the cluster's own resource group, whatever its type."""

    kind = STRAY

    def __init__(self, azure: Azure) -> None:
        super().__init__(azure)
        self._versions: dict[str, str] = {}  # of the API, by type

    @property
    def calls(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The calls about resources of any type."""
        return self.azure.client("resources").resources

    def left(self, where: Place) -> Sequence[Observed]:
        """List what is of their types and bears no tag of ours; since the listing lags, look at each."""
        rows = [
            row
            for row in self.azure.rows(self.calls.list_by_resource_group, where.group)
            if row.type.lower() in _ORDER and TAG_CLUSTER not in (row.tags or {})
        ]
        rows.sort(key=lambda row: _ORDER[row.type.lower()])
        found = [row for each in rows if (row := self._read(each.id)) is not None]
        return [self.observe(where, row, row.id, _state(row), self._hourly_usd(row)) for row in found]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Look it up."""
        return (Condition.GONE if self._read(identity) is None else Condition.READY), ""

    def remove(self, observed: Observed) -> None:
        """Delete it; refused while another uses it."""
        delete = partial(self.calls.begin_delete_by_id, api_version=self._version(observed.identity))
        self.begin(observed.identity, delete, observed.identity, is_removal=True)

    def _read(self, identity: str) -> Any:  # noqa: ANN401 - the SDK's model
        return self.azure.get(self.calls.get_by_id, identity, api_version=self._version(identity))

    def _version(self, identity: str) -> str:
        """Return the newest version of the API of a resource's type that is no preview."""
        namespace, _, of_type = type_of(identity).partition("/")
        key = f"{namespace}/{of_type}"
        if key not in self._versions:
            provider = self.azure.read(self.azure.client("resources").providers.get, namespace)
            rows = [row for row in provider.resource_types if row.resource_type.lower() == of_type]
            offered = [version for row in rows for version in row.api_versions or ()]
            stable = [version for version in offered if "preview" not in version]
            self._versions[key] = max(stable or offered)
        return self._versions[key]

    def _hourly_usd(self, row: Any) -> float:  # noqa: ANN401 - the SDK's model
        prices, of_type = self.azure.prices, row.type.lower()
        if of_type == _DISK:
            size: int = (row.properties or {}).get("diskSizeGB") or 0
            return float(prices.service("disk-premium-gib", size))
        return float(prices.service(_PRICES[of_type])) if _PRICES[of_type] else 0.0


def _state(row: Any) -> Condition:  # noqa: ANN401 - the SDK's model
    is_going = (row.properties or {}).get("provisioningState") == "Deleting"
    return Condition.DELETING if is_going else Condition.READY


# In the order in which they go.
DRIVERS: tuple[type[StrayDriver], ...] = (NodeGroupDriver, StrayResourceDriver)


def type_of(identity: str) -> str:
    """Return a resource's type, in lower case, such as microsoft.network/loadbalancers."""
    namespace, *rest = identity.lower().rpartition("/providers/")[2].split("/")
    return "/".join([namespace, *rest[::2]])


def is_of_aks(row: Any) -> bool:  # noqa: ANN401 - the SDK's model
    """Tell whether a resource group was made by AKS for a cluster."""
    return type_of(row.managed_by or "") == aks.CLUSTER_TYPE.lower()
