"""What a cluster's controllers made and left: no resource of ours, but it costs, and blocks the network.

They are looked for by LeftoversDriver, and only once the cluster is gone: before, they are its users'.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.leftovers import Leftover
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.gcp import gke, ids, operations
from cloudrec.providers.gcp.driver import GcpDriver, moment
from cloudrec.providers.gcp.kinship import Kin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


STRAY = "stray"


@dataclass(frozen=True, kw_only=True)
class Collection:
    """One of Compute Engine's collections.

    Attributes:
        clients: of what a region or zone has, and of what all regions share; empty where there is none.
        is_listed_as_global: whether it is the second of the two that lists both.
        price: of the price table, an hour; empty where it costs nothing.
    """

    clients: tuple[str, str]
    is_listed_as_global: bool = False
    price: str = ""

    @property
    def lister(self) -> str:
        """The client that lists all."""
        somewhere, everywhere = self.clients
        return everywhere if self.is_listed_as_global or not somewhere else somewhere


# By their names in paths, in the order in which they go: the first keep the later ones.
COLLECTIONS: Mapping[str, Collection] = MappingProxyType(
    {
        "forwardingRules": Collection(
            clients=("forwarding_rules", "global_forwarding_rules"), price="forwarding-rule"
        ),
        "targetHttpProxies": Collection(
            clients=("region_target_http_proxies", "target_http_proxies"), is_listed_as_global=True
        ),
        "targetHttpsProxies": Collection(
            clients=("region_target_https_proxies", "target_https_proxies"), is_listed_as_global=True
        ),
        "urlMaps": Collection(clients=("region_url_maps", "url_maps"), is_listed_as_global=True),
        "backendServices": Collection(
            clients=("region_backend_services", "backend_services"), is_listed_as_global=True
        ),
        "targetPools": Collection(clients=("target_pools", "")),
        "networkEndpointGroups": Collection(
            clients=("network_endpoint_groups", "global_network_endpoint_groups")
        ),
        "instanceGroups": Collection(clients=("instance_groups", "")),
        "healthChecks": Collection(
            clients=("region_health_checks", "health_checks"), is_listed_as_global=True
        ),
        "addresses": Collection(clients=("addresses", "global_addresses"), price="address"),
        "disks": Collection(clients=("disks", "")),
        "resourcePolicies": Collection(clients=("resource_policies", "")),
        "firewalls": Collection(clients=("", "firewalls")),
    }
)


# By these the others are found: they go last.
_ROOTS = frozenset({"networkEndpointGroups", "instanceGroups", "firewalls"})


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a cluster's leftovers may be.

    Attributes:
        title: the cluster's name with us.
        networks: the paths of its networks; none where they are gone.
    """

    title: str
    networks: frozenset[str] = frozenset()

    @property
    def cluster(self) -> str:
        """GKE's name of the cluster."""
        return gke.cluster_name(self.title)


def first(left: Sequence[Observed]) -> Sequence[Observed]:
    """Return those that can go before the others have gone by which they are found."""
    return [stray for stray in left if _collection(stray.identity) not in _ROOTS] or left


def _collection(path: str) -> str:
    return path.split("/")[-2]


class StrayDriver(Leftover, GcpDriver):
    """Handles leftovers of Compute Engine, whatever their kind: the identity, a path, tells it."""

    kind = STRAY
    deadline_s = 1200.0

    def left(self, places: Sequence[Place]) -> dict[str, list[Observed]]:
        """List what clusters that are gone left, by the clusters' titles, in the order in which it can go."""
        if not places:
            return {}
        rows = self._rows()
        return {place.title: self._of(place, rows) for place in places}

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """LeftoversDriver looks for them, where the cluster is gone."""
        del cluster
        return ()

    def disks(self) -> list[Any]:
        """List all disks of this region."""
        return self._listed("disks")

    def look(self, identity: str) -> tuple[Condition, str]:
        """Look the path up."""
        self.gcp.read(self._calls(identity).get, **ids.arguments(identity))
        return Condition.READY, ""

    def remove(self, observed: Observed) -> None:
        """Delete it; refused while another uses it."""
        identity = observed.identity
        delete = self._calls(identity).delete_unary

        def once() -> str:
            return operations.of_compute(self.gcp.call(delete, **ids.arguments(identity)))

        self.begin(identity, once, is_removal=True)

    def _calls(self, identity: str) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        somewhere, everywhere = COLLECTIONS[_collection(identity)].clients
        return self.gcp.compute(everywhere if ids.location(identity) == "global" else somewhere)

    def _rows(self) -> dict[str, list[Any]]:
        """List every collection, many at once."""
        with ThreadPoolExecutor(len(COLLECTIONS), thread_name_prefix="strays") as pool:
            return dict(zip(COLLECTIONS, pool.map(self._listed, COLLECTIONS), strict=True))

    def _listed(self, collection: str) -> list[Any]:
        """List a collection in this region, and what all regions share of it."""
        calls = self.gcp.compute(COLLECTIONS[collection].lister)
        if not hasattr(calls, "aggregated_list"):
            return self.gcp.rows(calls.list, project=self.gcp.project)
        field = ids.snake(collection)
        scopes = self.gcp.rows(calls.aggregated_list, project=self.gcp.project)
        return [
            row
            for scope, listed in scopes
            if gke.region_of(scope.rpartition("/")[2]) in {"global", self.gcp.region}
            for row in getattr(listed, field)
        ]

    def _of(self, place: Place, rows: Mapping[str, Sequence[Any]]) -> list[Observed]:
        kin = Kin(place.cluster, place.title, place.networks, rows)
        return [
            self._observe(place, collection, row) for collection in COLLECTIONS for row in kin.of(collection)
        ]

    def _observe(self, place: Place, collection: str, row: Any) -> Observed:  # noqa: ANN401 - the SDK's message
        return Observed(
            kind=STRAY,
            name=f"{place.title}/{collection}/{row.name}",
            identity=ids.path(row.self_link),
            condition=Condition.READY,
            tags={TAG_CLUSTER: place.title},
            hourly_usd=self._hourly_usd(collection, row),
            location=self.gcp.region,
            created=moment(row.creation_timestamp),
        )

    def _hourly_usd(self, collection: str, row: Any) -> float:  # noqa: ANN401 - the SDK's message
        prices = self.gcp.prices
        if collection == "disks":
            kind = f"disk-{ids.name(row.type_)}-gib"
            return prices.service(kind, row.size_gb) if kind in prices.services else 0.0
        price = COLLECTIONS[collection].price
        return prices.service(price) if price else 0.0
