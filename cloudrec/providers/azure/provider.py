"""The provider for Azure, which combines the parts in the other modules of this package."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.providers.azure import access, errors, groups, offers, preflight, prices, zones
from cloudrec.providers.azure.api.client import Azure
from cloudrec.providers.azure.cleanup import leftovers, unmanaged
from cloudrec.providers.azure.cluster import cluster as control_plane
from cloudrec.providers.azure.identity import federation, identity, reservation
from cloudrec.providers.azure.layout import AzureLayout
from cloudrec.providers.azure.monitoring import monitoring
from cloudrec.providers.azure.network import network
from cloudrec.providers.azure.nodes import end_schedule, guard, nodes, scale_to_zero
from cloudrec.providers.azure.registry import login, registry
from cloudrec.providers.azure.settings import settings_of
from cloudrec.providers.azure.storage import importing, lustre, shared, storage, tiers
from cloudrec.providers.base import offers as shop
from cloudrec.providers.base.cloud import CloudProvider, ProviderPart
from cloudrec.providers.base.driver import search_all
from cloudrec.providers.base.protocol import DataPlaces, GuardAccess
from cloudrec.providers.base.storage import sharing
from cloudrec.spec.models import SharedStorageSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.engine.graph import Observed
    from cloudrec.errors import CloudrecError
    from cloudrec.findings import Finding
    from cloudrec.providers.base.access import KubernetesAccess
    from cloudrec.providers.base.audit import Audit
    from cloudrec.providers.base.prices import Price, Prices
    from cloudrec.providers.base.protocol import Halt, Offer, PoolSize, Registry
    from cloudrec.spec.models import ClusterSpec

_EVERYWHERE = "global"  # the location of resources without a region

_PARTS: Sequence[ProviderPart[Azure, AzureLayout]] = (
    groups,
    network,
    identity,
    reservation,
    federation,
    guard,
    storage,
    registry,
    leftovers,
    control_plane,
    monitoring,
    nodes,
    lustre,
    shared,
)


class AzureProvider(CloudProvider[Azure, AzureLayout]):
    """Microsoft Azure as a provider."""

    name = "azure"
    storage_kind = storage.CONTAINER
    is_kept_storage_usable = True  # the rule and the roles of the other cluster name the account, which stays
    admits_by_address = True
    can_open_api = False
    parts = _PARTS
    usual_minutes = MappingProxyType({"cluster": (4, 8), "gpu-nodes": (8, 20)})
    refusals = errors.REFUSALS

    def reach(self, region: str | None) -> Azure:
        """Return the subscription in this region; for None, in the environment's region."""
        return Azure(self.environment, region)

    def explain(self, error: Exception) -> CloudrecError:
        """Return an error of cloudrec with the meaning of Azure's and the remedy."""
        return errors.explain(error)

    def credentials(self, account: Azure) -> Sequence[Finding]:
        """Check that Azure accepts the credentials."""
        return preflight.credentials(account)

    def findings(self, account: Azure, layout: AzureLayout) -> Sequence[Finding]:
        """Check quotas, offers, names that are taken and orphaned resources."""
        return preflight.findings(account, layout)

    def audit(
        self, cluster: str | None, managed: Sequence[Observed], *, locations: Sequence[str] = ()
    ) -> Audit:
        """Return resources with cloudrec's tags or names, or in its networks, that no driver manages.

        As in a search, one audit is enough for any number of locations.
        """
        wanted = {*locations, _EVERYWHERE, ""}
        with self.explained():
            account = self.account(locations[0] if len(locations) == 1 else None)
            # After `down --keep-data` a cluster's storage exists although nothing is managed any more.
            kept = [] if cluster is None else [seen for seen in self.search(cluster) if seen.holds_data]
            found = unmanaged.audit(account, cluster, [*managed, *kept])
        return replace(
            found, found=tuple(seen for seen in found.found if not locations or seen.location in wanted)
        )

    def regions(self) -> Sequence[str]:
        """Return the regions that are enabled for the account."""
        with self.explained():
            return unmanaged.regions(self.account())

    def account_of(self, cluster: ClusterSpec) -> str:
        """Return the subscription's id, which is unique in all of Azure's clouds."""
        azure = self.account(cluster.region)
        with self.explained():
            return self.reached_at(f"Azure subscription {azure.subscription}", azure.login.own_endpoint)

    def check(self, cluster: ClusterSpec) -> None:
        """Validate the settings and the capacity type."""
        sharing.check(cluster, settings_of(cluster))
        shop.check_capacity(
            cluster,
            instead="cloudrec buys no block reservations on Azure, and Azure has no queue: reserve nodes in "
            "a capacity reservation group, and use --capacity on-demand with "
            "cluster.settings.capacity_reservation_group",
        )

    def check_sharing(self, cluster: ClusterSpec, first: ClusterSpec) -> None:
        """Accept any two clusters of a subscription: the identity of the runs is the cluster's own."""

    def shared_storage(self, cluster: ClusterSpec) -> SharedStorageSpec:
        """Return the cluster's storage account and container."""
        azure = self.account(cluster.region)
        with self.explained():
            layout = AzureLayout(
                cluster=cluster,
                settings=settings_of(cluster),
                region=azure.region,
                subscription=azure.subscription,
                caller=azure.caller,
            )
        return SharedStorageSpec(
            cluster=layout.title,
            region=layout.region,
            account=layout.storage_account,
            bucket=layout.container,
            prefix=layout.prefix,
        )

    def note_user(self, cluster: ClusterSpec, *, is_user: bool) -> None:
        """Write or remove the cluster's tag of the other's account; see `SharesStorage.note_user`."""
        used = cluster.storage
        if used is None:
            return
        azure = self.account(cluster.region)
        with self.explained():
            storage.set_user(azure, used, cluster.title, azure.region if is_user else None)

    def node_types(self, cluster: ClusterSpec) -> Sequence[str]:
        """Return the sizes of the GPU nodes and of the system nodes."""
        return (*offers.types_of(cluster), settings_of(cluster).system_vm_size)

    def asked_prices(self, account: Azure, types: Sequence[str]) -> Sequence[Price]:
        """Ask the public price list, which needs no credentials."""
        listed = prices.PriceList(self.environment)
        return [
            *prices.machines(listed, account.region, types),
            *prices.services(listed, account.region),
        ]

    def spot_prices(self, account: Azure, types: Sequence[str]) -> Sequence[Price]:
        """Ask the public price list."""
        return prices.machines(prices.PriceList(self.environment), account.region, types)

    def spot_now(self, cluster: ClusterSpec, types: Sequence[str]) -> Sequence[Price]:
        """Ask the public price list, which has a price for the region."""
        # The guard may not list the subscription's regions, and runs in one that exists.
        region = self.account(cluster.region).given_region
        with self.explained():
            return prices.machines(prices.PriceList(self.environment), region, types)

    def offers(self, cluster: ClusterSpec) -> Sequence[Offer]:
        """Return the offers of GPU nodes that the specification allows, the best first."""
        layout = self.layout(cluster)
        now = self._now(self.account(cluster.region), layout.instance_types)
        return offers.located(shop.offers(nodes.places(layout), layout.hardware, now), layout.region)

    def catalog(self, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
        """Return all sizes of GPU nodes in the region, on demand and as spot."""
        azure = self.account(cluster.region)
        types = list({**offers.KNOWN, **dict.fromkeys(offers.types_of(cluster))})
        with self.explained():
            if refresh:
                self.keep_prices(azure, self.asked_prices(azure, sorted({*types, *self.node_types(cluster)})))
            sizes = offers.skus(azure, types)
            offered = zones.offered(sizes, ())
            hardware = offers.hardware_of(list(sizes), sizes, azure.region)
        return offers.located(shop.catalog(hardware, offered, self._now(azure, list(offered))), azure.region)

    def _now(self, azure: Azure, types: Sequence[str]) -> Prices:
        """Return the table with current prices; without them if the price list cannot be reached.

        They are only displayed, so a failure is no error: Azure itself enforces a pool's maximum price.
        """
        try:
            return azure.prices.renewed(self.spot_prices(azure, types))
        except errors.REFUSALS:
            return azure.prices

    def search(self, cluster: str | None, *, locations: Sequence[str] = ()) -> Sequence[Observed]:
        """Return the resources of a cluster, or of all clusters, in the given regions.

        Azure's lists cover all regions, so that one search is enough for any number of locations.
        """
        wanted = {*locations, _EVERYWHERE}
        with self.explained():
            # The account's region decides which prices the found resources have.
            account = self.account(locations[0] if len(locations) == 1 else None)
            found = search_all(self.drivers_of(account).values(), cluster)
        return [seen for seen in found if not locations or seen.location in wanted]

    def data_places(self, cluster: ClusterSpec) -> DataPlaces:
        """Return the places from which the nodes can read a dataset, for every type that may be taken."""
        layout = self.layout(cluster)
        return DataPlaces(tiers=tiers.of(layout), storage=layout.storage)

    def path_in_lustre(self, cluster: ClusterSpec, below: str) -> str:
        """Return the path in the container: an import keeps it."""
        return "/".join(part for part in (settings_of(cluster).prefix, below) if part)

    def fill_lustre(self, cluster: ClusterSpec, below: str) -> None:
        """Import the dataset from the container."""
        layout, azure = self.layout(cluster), self.account(cluster.region)
        with self.explained():
            importing.fill(layout, azure, self.path_in_lustre(cluster, below), azure.clock)

    def access(self, cluster: ClusterSpec) -> KubernetesAccess:
        """Return the access to the cluster, and write its kubeconfig."""
        with self.explained():
            return access.of(
                self.layout(cluster), self.account(cluster.region), self.home, dict(self.environment)
            )

    def registry(self, cluster: ClusterSpec) -> Registry:
        """Return the cluster's image registry with a login to it."""
        with self.explained():
            return login.login(self.layout(cluster), self.account(cluster.region), dict(self.environment))

    def guard(self, cluster: ClusterSpec) -> GuardAccess:
        """Return what the guard's pod needs to use the identity that may scale the pools."""
        azure = self.account(cluster.region)
        with self.explained():
            return GuardAccess(
                cluster=cluster,
                annotations={
                    "azure.workload.identity/client-id": scale_to_zero.client_id(azure, cluster.title)
                },
                pod_labels={"azure.workload.identity/use": "true"},
                environment={"AZURE_SUBSCRIPTION_ID": azure.subscription, "AZURE_REGION": azure.region},
            )

    def halt(self, cluster: ClusterSpec) -> Halt:
        """Begin to scale the GPU pools to no nodes."""
        with self.explained():
            return scale_to_zero.halt(self.account(cluster.region), cluster.title)

    def pools(self, cluster: ClusterSpec) -> Sequence[PoolSize]:
        """Return the GPU pools."""
        with self.explained():
            return scale_to_zero.sizes(self.account(cluster.region), cluster.title)

    def resize(self, cluster: ClusterSpec, pool: str, nodes: int) -> str:
        """Begin to give a pool another number of nodes."""
        with self.explained():
            return scale_to_zero.resize(self.account(cluster.region), cluster.title, pool, nodes)

    def move_end(self, cluster: ClusterSpec, pools: Sequence[str]) -> None:
        """Move the end in the tag of the workflow, which ends all pools, to the cluster's expiry."""
        del pools
        with self.explained():
            end_schedule.move(self.account(cluster.region), cluster.title, cluster.expires or "")

    def layout(self, cluster: ClusterSpec) -> AzureLayout:
        """Return the layout; it has zones that Azure offers if the specification has none."""
        azure, settings = self.account(cluster.region), settings_of(cluster)
        types = offers.types_of(cluster)
        offers.refuse(types)  # before a region without the size is the reason
        with self.explained():
            sizes = offers.skus(azure, types)
            system = offers.skus(azure, [settings.system_vm_size]).get(settings.system_vm_size)
            return AzureLayout(
                cluster=cluster,
                settings=settings,
                region=azure.region,
                subscription=azure.subscription,
                caller=azure.caller,
                gpu_zones=zones.choose(azure, cluster, sizes, types),
                system_zones=system.zones if system else (),
                instance_types=types,
                hardware=offers.hardware_of(types, sizes, azure.region),
                offered=zones.offered(sizes, zones.laid_out(azure, cluster.title)),
                arm=azure.login.cloud_endpoint,
                prices=azure.prices,
            )
