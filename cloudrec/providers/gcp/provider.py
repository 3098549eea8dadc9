"""The Google Cloud provider, assembled from the other modules of this package."""

from __future__ import annotations

from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.errors import SpecError
from cloudrec.providers.base import offers as shop
from cloudrec.providers.base.cloud import CloudProvider, ProviderPart
from cloudrec.providers.base.protocol import DataPlaces, GuardAccess
from cloudrec.providers.base.storage import sharing
from cloudrec.providers.gcp import access, errors, offers, preflight, prices, zones
from cloudrec.providers.gcp.api import apis
from cloudrec.providers.gcp.api.client import Gcp
from cloudrec.providers.gcp.cleanup import leftovers, unmanaged
from cloudrec.providers.gcp.cluster import cluster as control_plane
from cloudrec.providers.gcp.identity import ending, guard, identity, prepared
from cloudrec.providers.gcp.layout import GcpLayout
from cloudrec.providers.gcp.network import firewall, nat, network, placement
from cloudrec.providers.gcp.nodes import calendar, end_label, end_schedule, nodes, scale_to_zero
from cloudrec.providers.gcp.registry import registry
from cloudrec.providers.gcp.settings import settings_of
from cloudrec.providers.gcp.storage import lustre, storage, tiers
from cloudrec.spec.models import SharedStorageSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.engine.graph import Observed
    from cloudrec.errors import CloudrecError
    from cloudrec.findings import Finding
    from cloudrec.providers.base.access import KubernetesAccess
    from cloudrec.providers.base.audit import Audit
    from cloudrec.providers.base.capacity.blocks import BlockOffer
    from cloudrec.providers.base.prices import Price
    from cloudrec.providers.base.protocol import Halt, Offer, PoolSize, Registry
    from cloudrec.spec.models import BlockSpec, ClusterSpec

_PARTS: Sequence[ProviderPart[Gcp, GcpLayout]] = (
    apis,
    network,
    nat,
    firewall,
    identity,
    storage,
    registry,
    leftovers,
    control_plane,
    guard,
    ending,
    end_schedule,
    placement,
    nodes,
    lustre,
)


class GcpProvider(CloudProvider[Gcp, GcpLayout]):
    """Google Cloud as a provider."""

    name = "gcp"
    prices_hold = 7  # the catalogue has tens of thousands of rows, and its spot prices hold for a month
    usual_minutes = MappingProxyType({"cluster": (5, 8), "gpu-nodes": (5, 15)})
    settle_s = 20.0  # lists are mostly consistent at once, policies after seconds
    storage_kind = storage.BUCKET
    is_kept_storage_usable = False  # the access of the runs goes with the cluster that has granted it
    parts = _PARTS
    refusals = errors.REFUSALS

    def reach(self, region: str | None) -> Gcp:
        """Return the project in this region; None for the region of the environment."""
        return Gcp(self.environment, region)

    def explain(self, error: Exception) -> CloudrecError:
        """Return Google's error with a message and a remedy for the user."""
        return errors.explain(error)

    def credentials(self, account: Gcp) -> Sequence[Finding]:
        """Check that Google accepts the credentials."""
        return preflight.credentials(account)

    def findings(self, account: Gcp, layout: GcpLayout) -> Sequence[Finding]:
        """Check quotas, offers, names in use and orphaned resources."""
        return preflight.findings(account, layout)

    def audited(self, account: Gcp, cluster: str | None, managed: Sequence[Observed]) -> Audit:
        """Return resources with cloudrec's tags or names, or in its networks, that no driver manages."""
        return unmanaged.audit(account, cluster, managed)

    def regions(self) -> Sequence[str]:
        """Return the regions that are enabled for the account."""
        with self.explained():
            return unmanaged.regions(self.account())

    def account_of(self, cluster: ClusterSpec) -> str:
        """Return the project's id, which Google never gives to another project."""
        gcp = self.account(cluster.region)
        with self.explained():
            return self.reached_at(f"Google Cloud project {gcp.project}", gcp.endpoint)

    def check(self, cluster: ClusterSpec) -> None:
        """Validate the settings and the capacity type."""
        settings = settings_of(cluster)
        shop.check_capacity(
            cluster,
            (*shop.USUAL, "flex-start", "block"),
        )
        if settings.reservation and cluster.capacity == "block":
            raise SpecError(
                f"cluster.capacity is block, and cluster.settings.reservation is {settings.reservation}",
                remedy="leave one of them out: a reservation is used with --capacity on-demand",
            )
        if settings.reservation and cluster.capacity == "flex-start":
            raise SpecError(
                f"cluster.capacity is flex-start, and cluster.settings.reservation is "
                f"{settings.reservation}: GKE's queue uses no reservation",
                remedy="leave one of them out: a reservation is used with --capacity on-demand",
            )
        if settings.max_run_duration and not (settings.flex_start or cluster.capacity == "flex-start"):
            raise SpecError(
                f"cluster.settings.max_run_duration is {settings.max_run_duration}, and the nodes are not "
                "from the queue",
                remedy="use it with --capacity flex-start; --ttl ends a cluster of other nodes",
            )
        sharing.check(cluster, settings)

    def check_sharing(self, cluster: ClusterSpec, first: ClusterSpec) -> None:
        """Refuse another service account: the bucket's policy names that of the first cluster's runs."""
        own, theirs = settings_of(cluster).service_account, settings_of(first).service_account
        if own != theirs:
            raise SpecError(
                f"cluster.settings.service_account is {own}; that of cluster {first.title}, whose storage "
                f"cluster.storage_of names, is {theirs}, and only this account may use the bucket",
                remedy=f"use --set cluster.settings.service_account={theirs}, or leave --storage-of out",
            )

    def shared_storage(self, cluster: ClusterSpec) -> SharedStorageSpec:
        """Return the cluster's bucket. Cloud Storage itself uses its key, so the runs need no permission."""
        gcp, settings = self.account(cluster.region), settings_of(cluster)
        with self.explained():
            layout = GcpLayout(
                cluster=cluster, settings=settings, region=gcp.region, project=gcp.project, number=gcp.number
            )
        return SharedStorageSpec(
            cluster=layout.title, region=layout.region, bucket=layout.bucket, prefix=layout.prefix
        )

    def note_user(self, cluster: ClusterSpec, *, is_user: bool) -> None:
        """Write or remove the cluster's label of the other's bucket; see `SharesStorage.note_user`."""
        shared = cluster.storage
        if shared is None:
            return
        region = self.account(cluster.region).region if is_user else None
        with self.explained():
            storage.set_user(self.account(shared.region), shared.bucket, cluster.title, region)

    def block_offers(self, cluster: ClusterSpec) -> Sequence[BlockOffer]:
        """Return when Google has nodes for a fixed time; see `OffersBlocks.block_offers`."""
        types = offers.types_of(cluster)
        offers.refuse(types)
        with self.explained():
            return calendar.offers(self.account(cluster.region), cluster, types, datetime.now(UTC))

    def block_of(self, cluster: ClusterSpec) -> BlockSpec | None:
        """Return the block that was requested for the cluster; see `SellsBlocks.block_of`."""
        if cluster.capacity != "block":
            return None
        with self.explained():
            return calendar.of_cluster(self.account(cluster.region), cluster, datetime.now(UTC))

    def buy_block(self, cluster: ClusterSpec, offer: BlockOffer) -> BlockSpec:
        """Request a future reservation in calendar mode; see `SellsBlocks.buy_block`."""
        with self.explained():
            return calendar.buy(self.account(cluster.region), cluster, offer)

    def node_types(self, cluster: ClusterSpec) -> Sequence[str]:
        """Return the machine types of the GPU nodes and of the CPU nodes."""
        return (*offers.types_of(cluster), settings_of(cluster).cpu_machine_type)

    def asked_prices(self, account: Gcp, types: Sequence[str]) -> Sequence[Price]:
        """Ask the Cloud Billing catalogue, which has spot prices too."""
        return prices.listed(account.skus(), account.region, sorted({*types, *offers.KNOWN}))

    def spot_prices(self, account: Gcp, types: Sequence[str]) -> Sequence[Price]:
        """Return nothing: the catalogue has given them."""
        del account, types
        return ()

    def offers(self, cluster: ClusterSpec) -> Sequence[Offer]:
        """Return the GPU nodes that fit the spec, in order of preference."""
        layout = self.layout(cluster)
        return shop.offers(layout.places(), layout.hardware, layout.prices)

    def catalog(self, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
        """Return every GPU machine type that has a price, on demand and as spot."""
        gcp = self.account(cluster.region)
        types = list({**offers.KNOWN, **dict.fromkeys(cluster.instance_types)})
        with self.explained():
            if refresh:
                self.keep_prices(gcp, self.asked_prices(gcp, [*types, *self.node_types(cluster)]))
            zones_of = zones.offering(gcp, types)
            hardware = offers.hardware_of(types, gcp.region, gcp.machine_type)
        return shop.catalog(hardware, zones_of, gcp.prices, named=cluster.instance_types)

    def path_in_lustre(self, cluster: ClusterSpec, below: str) -> str:
        """Return the last part: an import puts a folder's content at the root of the file system."""
        del cluster
        return below.rpartition("/")[2]

    def fill_lustre(self, cluster: ClusterSpec, below: str) -> None:
        """Import the folder that has the dataset."""
        layout, gcp = self.layout(cluster), self.account(cluster.region)
        folder = below.rpartition("/")[0]
        source = f"{layout.storage}/{folder}/" if folder else f"{layout.storage}/"
        with self.explained():
            lustre.fill(layout, gcp, source, gcp.clock)

    def data_places(self, cluster: ClusterSpec) -> DataPlaces:
        """Return the places from which the nodes can read a dataset, for every type that may be taken."""
        layout = self.layout(cluster)
        return DataPlaces(tiers=tiers.of(layout), storage=layout.storage)

    def access(self, cluster: ClusterSpec) -> KubernetesAccess:
        """Return the access to the cluster, and write its kubeconfig."""
        with self.explained():
            return access.of(
                self.layout(cluster), self.account(cluster.region), self.home, dict(self.environment)
            )

    def registry(self, cluster: ClusterSpec) -> Registry:
        """Log in to the cluster's image repository, and return its address and the login."""
        with self.explained():
            return registry.login(self.layout(cluster), self.account(cluster.region))

    def guard(self, cluster: ClusterSpec) -> GuardAccess:
        """Return the environment with which the guard in the cluster finds the pools that it scales."""
        layout = self.layout(cluster)
        environment = {
            "GOOGLE_CLOUD_PROJECT": layout.project,
            "GOOGLE_CLOUD_REGION": layout.region,
            scale_to_zero.CLUSTER: layout.cluster_path,
        }
        return GuardAccess(cluster=cluster, environment=environment)

    def halt(self, cluster: ClusterSpec) -> Halt:
        """Start to scale the GPU pools to zero nodes."""
        with self.explained():
            path = self.environment.get(scale_to_zero.CLUSTER, "")
            return scale_to_zero.halt(self.account(cluster.region), cluster.title, cluster=path)

    def pools(self, cluster: ClusterSpec) -> Sequence[PoolSize]:
        """Return the GPU pools."""
        with self.explained():
            path = self.environment.get(scale_to_zero.CLUSTER, "")
            return scale_to_zero.sizes(self.account(cluster.region), cluster.title, cluster=path)

    def resize(self, cluster: ClusterSpec, pool: str, nodes: int) -> str:
        """Begin to give a pool another number of nodes."""
        with self.explained():
            path = self.environment.get(scale_to_zero.CLUSTER, "")
            return scale_to_zero.resize(
                self.account(cluster.region), cluster.title, pool, nodes, cluster=path
            )

    def move_end(self, cluster: ClusterSpec, pools: Sequence[str]) -> None:
        """Move the end that Google Cloud keeps to the cluster's expiry, with the guard's permissions."""
        del pools  # the label of the cluster is for all of them
        with self.explained():
            path = self.environment.get(scale_to_zero.CLUSTER, "")
            end_label.move(self.account(cluster.region), cluster.title, cluster.expires or "", cluster=path)

    def layout(self, cluster: ClusterSpec) -> GcpLayout:
        """Decide names and zones; the zones come from Google if the spec does not name them."""
        gcp = self.account(cluster.region)
        types = offers.types_of(cluster)
        offers.refuse(types)  # before a region without the type is the reason
        settings = settings_of(cluster)
        with self.explained():
            chosen = zones.choose(gcp, cluster, types)
            has = prepared.find(gcp, cluster.title)
            return GcpLayout(
                cluster=cluster,
                settings=settings,
                region=gcp.region,
                project=gcp.project,
                number=gcp.number,
                home_zone=chosen.home,
                gpu_zones=chosen.gpu,
                instance_types=types,
                hardware=offers.with_ssds(
                    offers.hardware_of(types, gcp.region, gcp.machine_type), settings.local_ssds
                ),
                offered=zones.offering(gcp, types),
                prices=gcp.prices,
                shared_account=has.node_account,
                guard_role=has.guard_role,
                shared_end=prepared.end_account(gcp, cluster.title) if cluster.expires else "",
                starter_role=prepared.starter_role(gcp) if cluster.has_movable_end else "",
            )
