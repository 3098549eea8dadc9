"""Orphaned resources of a cluster's controllers: they cost money, and block the network's deletion.

GcpNetworkOrphansDriver searches for them when the cluster is deleted. Before that, the cluster uses them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.base.leftovers import Leftover
from cloudrec.providers.gcp.api import gke, ids, operations, sdk
from cloudrec.providers.gcp.api.driver import GcpDriver, moment
from cloudrec.providers.gcp.cleanup.ownership import Kin, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cloudrec.providers.gcp.api.client import Method
    from cloudrec.providers.gcp.cleanup.ownership import Found

T = TypeVar("T")
STRAY = "stray"


class OrphanCalls(Protocol):
    """The methods that the clients of all Compute Engine collections have."""

    def get(self, request: dict[str, object], *, retry: None, timeout: float) -> object:
        """Return one resource."""

    def delete_unary(
        self, request: dict[str, object], *, retry: None, timeout: float
    ) -> sdk.compute.Operation:
        """Start the deletion of one resource."""


@dataclass(frozen=True, kw_only=True)
class Collection:
    """One collection of Compute Engine.

    Attributes:
        somewhere: returns the client class for regional or zonal resources; None if there are none.
        in_region: returns the client class for regional ones, if that for zonal ones is another.
        everywhere: returns the client class for global resources; None if there are none.
        price: the key in the price table; empty if the resources are free.
    """

    somewhere: Callable[[], Callable[..., OrphanCalls]] | None = None
    in_region: Callable[[], Callable[..., OrphanCalls]] | None = None
    everywhere: Callable[[], Callable[..., OrphanCalls]] | None = None
    price: str = ""


# By their names in paths, in the order of deletion: the first ones use the later ones.
COLLECTIONS: Mapping[str, Collection] = MappingProxyType(
    {
        "forwardingRules": Collection(
            somewhere=lambda: sdk.compute.ForwardingRulesClient,
            everywhere=lambda: sdk.compute.GlobalForwardingRulesClient,
            price="forwarding-rule",
        ),
        "targetHttpProxies": Collection(
            somewhere=lambda: sdk.compute.RegionTargetHttpProxiesClient,
            everywhere=lambda: sdk.compute.TargetHttpProxiesClient,
        ),
        "targetHttpsProxies": Collection(
            somewhere=lambda: sdk.compute.RegionTargetHttpsProxiesClient,
            everywhere=lambda: sdk.compute.TargetHttpsProxiesClient,
        ),
        "urlMaps": Collection(
            somewhere=lambda: sdk.compute.RegionUrlMapsClient,
            everywhere=lambda: sdk.compute.UrlMapsClient,
        ),
        "backendServices": Collection(
            somewhere=lambda: sdk.compute.RegionBackendServicesClient,
            everywhere=lambda: sdk.compute.BackendServicesClient,
        ),
        "targetPools": Collection(somewhere=lambda: sdk.compute.TargetPoolsClient),
        "networkEndpointGroups": Collection(
            somewhere=lambda: sdk.compute.NetworkEndpointGroupsClient,
            everywhere=lambda: sdk.compute.GlobalNetworkEndpointGroupsClient,
        ),
        "instanceGroups": Collection(somewhere=lambda: sdk.compute.InstanceGroupsClient),
        "healthChecks": Collection(
            somewhere=lambda: sdk.compute.RegionHealthChecksClient,
            everywhere=lambda: sdk.compute.HealthChecksClient,
        ),
        "addresses": Collection(
            somewhere=lambda: sdk.compute.AddressesClient,
            everywhere=lambda: sdk.compute.GlobalAddressesClient,
            price="address",
        ),
        "disks": Collection(
            somewhere=lambda: sdk.compute.DisksClient, in_region=lambda: sdk.compute.RegionDisksClient
        ),
        "resourcePolicies": Collection(somewhere=lambda: sdk.compute.ResourcePoliciesClient),
        "subnetworks": Collection(somewhere=lambda: sdk.compute.SubnetworksClient),
        "firewalls": Collection(everywhere=lambda: sdk.compute.FirewallsClient),
    }
)


# The other orphaned resources are found through these, so that these are deleted last.
_ROOTS = frozenset({"networkEndpointGroups", "instanceGroups", "firewalls"})


@dataclass(frozen=True, kw_only=True)
class GcpOrphanScope:
    """The cluster and the networks whose orphaned resources are searched.

    Attributes:
        title: the name of the cluster.
        networks: the paths of its networks; empty if they are deleted.
    """

    title: str
    networks: frozenset[str] = frozenset()

    @property
    def cluster(self) -> str:
        """The name of the cluster in GKE."""
        return gke.cluster_name(self.title)


def first(left: Sequence[Observed]) -> Sequence[Observed]:
    """Return the ones to delete first: all but those through which others are found, else these."""
    return [stray for stray in left if _collection(stray.identity) not in _ROOTS] or left


def _collection(path: str) -> str:
    return path.split("/")[-2]


class GcpOrphanDriver(Leftover, GcpDriver):
    """Handles orphaned resources of Compute Engine. The identity is the path, which has the collection."""

    kind = STRAY
    deadline_s = 1200.0

    def left(self, places: Sequence[GcpOrphanScope]) -> dict[str, list[Observed]]:
        """Return the orphaned resources of deleted clusters by cluster, in the order of deletion."""
        if not places:
            return {}
        rows = self._rows()
        return {place.title: self._of(place, rows) for place in places}

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return nothing: GcpNetworkOrphansDriver searches for them."""
        del cluster
        return ()

    def disks(self) -> list[sdk.compute.Disk]:
        """List all disks in this region, zonal and regional ones."""
        scopes = self._here(self.gcp.rest(sdk.compute.DisksClient).aggregated_list)
        return [row for scope in scopes for row in scope.disks]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY; raises NotFound if the resource does not exist."""
        self.gcp.read(self._calls(identity).get, ids.arguments(identity))
        return Condition.READY, ""

    def remove(self, observed: Observed) -> None:
        """Start the deletion, which Google refuses while another resource uses this one."""
        identity = observed.identity
        delete = self._calls(identity).delete_unary

        def once() -> str:
            return operations.of_compute(self.gcp.call(delete, ids.arguments(identity)))

        self.begin(identity, once, is_removal=True)

    def _calls(self, identity: str) -> OrphanCalls:
        of = COLLECTIONS[_collection(identity)]
        made = of.everywhere if ids.location(identity) == "global" else of.somewhere
        if "/regions/" in identity:
            made = of.in_region or made
        if made is None:
            raise ValueError(f"Compute Engine has no collection for {identity}")
        return self.gcp.rest(made())

    def _rows(self) -> Rows:
        """List the regional and global resources of every collection, in parallel."""
        gcp, of, here = self.gcp, sdk.compute, self._here
        with ThreadPoolExecutor(len(COLLECTIONS), thread_name_prefix="strays") as pool:
            addresses = pool.submit(here, gcp.rest(of.AddressesClient).aggregated_list)
            backends = pool.submit(here, gcp.rest(of.BackendServicesClient).aggregated_list)
            disks = pool.submit(self.disks)
            firewalls = pool.submit(
                gcp.rows, gcp.rest(of.FirewallsClient).list, of.ListFirewallsRequest(project=gcp.project)
            )
            rules = pool.submit(here, gcp.rest(of.ForwardingRulesClient).aggregated_list)
            checks = pool.submit(here, gcp.rest(of.HealthChecksClient).aggregated_list)
            groups = pool.submit(here, gcp.rest(of.InstanceGroupsClient).aggregated_list)
            endpoints = pool.submit(here, gcp.rest(of.NetworkEndpointGroupsClient).aggregated_list)
            policies = pool.submit(here, gcp.rest(of.ResourcePoliciesClient).aggregated_list)
            proxies = pool.submit(here, gcp.rest(of.TargetHttpProxiesClient).aggregated_list)
            secure = pool.submit(here, gcp.rest(of.TargetHttpsProxiesClient).aggregated_list)
            subnets = pool.submit(here, gcp.rest(of.SubnetworksClient).aggregated_list)
            pools = pool.submit(here, gcp.rest(of.TargetPoolsClient).aggregated_list)
            maps = pool.submit(here, gcp.rest(of.UrlMapsClient).aggregated_list)
        return Rows(
            addresses=[row for each in addresses.result() for row in each.addresses],
            backend_services=[row for each in backends.result() for row in each.backend_services],
            disks=disks.result(),
            firewalls=firewalls.result(),
            forwarding_rules=[row for each in rules.result() for row in each.forwarding_rules],
            health_checks=[row for each in checks.result() for row in each.health_checks],
            instance_groups=[row for each in groups.result() for row in each.instance_groups],
            network_endpoint_groups=[
                row for each in endpoints.result() for row in each.network_endpoint_groups
            ],
            resource_policies=[row for each in policies.result() for row in each.resource_policies],
            subnetworks=[row for each in subnets.result() for row in each.subnetworks],
            target_http_proxies=[row for each in proxies.result() for row in each.target_http_proxies],
            target_https_proxies=[row for each in secure.result() for row in each.target_https_proxies],
            target_pools=[row for each in pools.result() for row in each.target_pools],
            url_maps=[row for each in maps.result() for row in each.url_maps],
        )

    def _here(self, listing: Method[dict[str, object], Iterable[tuple[str, T]]]) -> list[T]:
        """List a collection in all its places, and return those of this region and the global one."""
        request: dict[str, object] = {"project": self.gcp.project}
        scopes = self.gcp.rows(listing, request)
        here = {"global", self.gcp.region}
        return [listed for scope, listed in scopes if gke.region_of(scope.rpartition("/")[2]) in here]

    def _of(self, place: GcpOrphanScope, rows: Rows) -> list[Observed]:
        kin = Kin(place.cluster, place.title, place.networks, rows)
        return [
            self._observe(place, collection, row)
            for collection in COLLECTIONS
            for row in kin.found[collection]
        ]

    def _observe(self, place: GcpOrphanScope, collection: str, row: Found) -> Observed:
        return Observed(
            kind=STRAY,
            name=f"{place.title}/{collection}/{row.name}",
            identity=ids.known(row.self_link),
            condition=Condition.READY,
            tags={TAG_CLUSTER: place.title},
            hourly_usd=self._hourly_usd(collection, row),
            location=self.gcp.region,
            created=moment(row.creation_timestamp),
        )

    def _hourly_usd(self, collection: str, row: Found) -> float | None:
        prices = self.gcp.prices
        if isinstance(row, sdk.compute.Disk):
            if row.replica_zones:  # the table has no price of a disk in two zones
                return None
            return prices.service(f"disk-{ids.name(row.type_)}-gib", row.size_gb)
        if isinstance(row, sdk.compute.Address) and row.address_type == "INTERNAL":
            return FREE
        price = COLLECTIONS[collection].price
        return prices.service(price) if price else FREE
