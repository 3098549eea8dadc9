"""The provider: combines the parts of this folder into what `CloudProvider` needs."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.errors import SpecError
from cloudrec.providers.aws import access, errors, offers, preflight, price_list, zones
from cloudrec.providers.aws.api.client import Aws
from cloudrec.providers.aws.cleanup import leftovers, unmanaged
from cloudrec.providers.aws.cluster import addons, admins, logs
from cloudrec.providers.aws.cluster import cluster as control_plane
from cloudrec.providers.aws.identity import encryption, identity
from cloudrec.providers.aws.layout import AwsLayout
from cloudrec.providers.aws.network import endpoints, firewall, nat, network, routes
from cloudrec.providers.aws.nodes import blocks, end_schedule, nodes, scale_to_zero
from cloudrec.providers.aws.registry import registry
from cloudrec.providers.aws.settings import settings_of
from cloudrec.providers.aws.storage import lustre, storage, tiers
from cloudrec.providers.base import offers as shop
from cloudrec.providers.base.cloud import CloudProvider, ProviderPart
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
    from cloudrec.providers.base.capacity.blocks import BlockOffer
    from cloudrec.providers.base.prices import Price
    from cloudrec.providers.base.protocol import Halt, Offer, PoolSize, Registry
    from cloudrec.spec.models import BlockSpec, ClusterSpec

_PARTS: Sequence[ProviderPart[Aws, AwsLayout]] = (
    network,
    routes,
    nat,
    firewall,
    endpoints,
    identity,
    encryption,
    storage,
    registry,
    logs,
    leftovers,
    control_plane,
    addons,
    admins,
    nodes,
    lustre,
)


class AwsProvider(CloudProvider[Aws, AwsLayout]):
    """Amazon Web Services: EKS clusters and what they need."""

    name = "aws"
    admits_by_address = True
    usual_minutes = MappingProxyType({"cluster": (9, 15), "gpu-nodes": (5, 15)})
    settle_s = 20.0  # seconds: EC2 lists a new resource by its tags only after some seconds
    storage_kind = storage.BUCKET
    is_kept_storage_usable = True  # the other cluster's roles name the bucket and its key, which both stay
    parts = _PARTS
    refusals = errors.REFUSALS

    def reach(self, region: str | None) -> Aws:
        """Return the account in this region; None means the region that the environment names."""
        return Aws(self.environment, region)

    def explain(self, error: Exception) -> CloudrecError:
        """Return AWS's error as a CloudrecError with a remedy."""
        return errors.explain(error)

    def credentials(self, account: Aws) -> Sequence[Finding]:
        """Check that AWS accepts the credentials."""
        return preflight.credentials(account)

    def findings(self, account: Aws, layout: AwsLayout) -> Sequence[Finding]:
        """Check quotas, offers, names that are in use and orphaned resources."""
        return preflight.findings(account, layout)

    def audited(self, account: Aws, cluster: str | None, managed: Sequence[Observed]) -> Audit:
        """Return resources with cloudrec's tags or names, or in its networks, that no driver manages."""
        return unmanaged.audit(account, cluster, managed)

    def regions(self) -> Sequence[str]:
        """Return the regions that are enabled for the account."""
        with self.explained():
            return unmanaged.regions(self.account())

    def account_of(self, cluster: ClusterSpec) -> str:
        """Return the account's number, with a partition other than `aws` and an endpoint other than AWS's."""
        aws = self.account(cluster.region)
        with self.explained():
            partition = "" if aws.partition == "aws" else f" ({aws.partition})"
            return self.reached_at(f"AWS account {aws.account}{partition}", aws.endpoint)

    def check(self, cluster: ClusterSpec) -> None:
        """Validate the settings and the capacity type."""
        settings = settings_of(cluster)
        shop.check_capacity(
            cluster,
            (*shop.USUAL, "block"),
            instead="AWS has no queue for nodes; choose --capacity on-demand, spot, spot-first or block",
        )
        if settings.capacity_reservation_id and cluster.capacity == "block":
            raise SpecError(
                "cluster.capacity is block, and cluster.settings.capacity_reservation_id is set",
                remedy="leave one of them out: a capacity reservation is used with --capacity on-demand",
            )
        sharing.check(cluster, settings)

    def check_sharing(self, cluster: ClusterSpec, first: ClusterSpec) -> None:
        """Accept any two clusters of an account: the role of the runs is the cluster's own."""

    def shared_storage(self, cluster: ClusterSpec) -> SharedStorageSpec:
        """Return the cluster's bucket, and the key that encrypts it."""
        aws, settings = self.account(cluster.region), settings_of(cluster)
        with self.explained():
            layout = AwsLayout(
                cluster=cluster,
                settings=settings.model_copy(update={"kms_key": encryption.named(aws, settings)}),
                region=aws.region,
                account=aws.account,
                partition=aws.partition,
            )
        return SharedStorageSpec(
            cluster=layout.title,
            region=layout.region,
            bucket=layout.bucket,
            prefix=layout.prefix,
            key=layout.storage_key,
        )

    def note_user(self, cluster: ClusterSpec, *, is_user: bool) -> None:
        """Write or remove the cluster's tag of the other cluster's bucket; see `SharesStorage.note_user`."""
        shared = cluster.storage
        if shared is None:
            return
        region = self.account(cluster.region).region if is_user else None
        with self.explained():
            storage.set_user(self.account(shared.region), shared.bucket, cluster.title, region)

    def block_offers(self, cluster: ClusterSpec) -> Sequence[BlockOffer]:
        """Return the Capacity Blocks that AWS sells now; see `OffersBlocks.block_offers`."""
        types = offers.types_of(cluster)
        offers.refuse(types)
        with self.explained():
            return blocks.offers(self.account(cluster.region), cluster, types)

    def block_of(self, cluster: ClusterSpec) -> BlockSpec | None:
        """Return the cluster's Capacity Block; see `SellsBlocks.block_of`."""
        with self.explained():
            return blocks.of_cluster(self.account(cluster.region), cluster)

    def buy_block(self, cluster: ClusterSpec, offer: BlockOffer) -> BlockSpec:
        """Buy a Capacity Block; see `SellsBlocks.buy_block`."""
        with self.explained():
            return blocks.buy(self.account(cluster.region), cluster, offer)

    def node_types(self, cluster: ClusterSpec) -> Sequence[str]:
        """Return the GPU types, and the first type of the CPU nodes, whose price theirs is."""
        return (*offers.types_of(cluster), settings_of(cluster).cpu_instance_types[0])

    def asked_prices(self, account: Aws, types: Sequence[str]) -> Sequence[Price]:
        """Ask AWS's price list."""
        # The price list has endpoints in few regions, each with the prices of all of them.
        listed_at = Aws(self.environment, price_list.PRICE_LIST_REGION)
        return [
            *price_list.on_demand(listed_at, account.region, types),
            *price_list.services(listed_at, account.region),
            *price_list.traffic(listed_at, account.region),
        ]

    def spot_prices(self, account: Aws, types: Sequence[str]) -> Sequence[Price]:
        """Ask EC2, whose spot prices differ by zone and change by the minute."""
        return price_list.spot(account, types)

    def offers(self, cluster: ClusterSpec) -> Sequence[Offer]:
        """Return the GPU nodes that the cluster could have, with their prices, in order of preference."""
        layout, aws = self.layout(cluster), self.account(cluster.region)
        with self.explained():
            prices = aws.prices.renewed(price_list.spot(aws, layout.instance_types))
        return shop.offers(nodes.places(layout), layout.hardware, prices)

    def catalog(self, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
        """Return every type of GPU node that has a price, on demand and as spot."""
        aws = self.account(cluster.region)
        types = list({**offers.KNOWN, **dict.fromkeys(cluster.instance_types)})
        with self.explained():
            if refresh:
                self.keep_prices(aws, self.asked_prices(aws, sorted({*types, *self.node_types(cluster)})))
            zones_of = zones.offering(aws, types)
            prices = aws.prices.renewed(price_list.spot(aws, types))
            hardware = offers.hardware_of(types, aws)
        return shop.catalog(hardware, zones_of, prices, named=cluster.instance_types)

    def data_places(self, cluster: ClusterSpec) -> DataPlaces:
        """Return the places from which the nodes can read a dataset, for every type that may be taken."""
        layout = self.layout(cluster)
        return DataPlaces(tiers=tiers.of(layout), storage=layout.storage)

    def access(self, cluster: ClusterSpec) -> KubernetesAccess:
        """Write the cluster's kubeconfig, and return how runs reach the cluster."""
        with self.explained():
            return access.of(
                self.layout(cluster), self.account(cluster.region), self.home, dict(self.environment)
            )

    def registry(self, cluster: ClusterSpec) -> Registry:
        """Log in to the cluster's image repository, and return its address and password."""
        with self.explained():
            return registry.login(self.layout(cluster), self.account(cluster.region))

    def guard(self, cluster: ClusterSpec) -> GuardAccess:
        """Return the variables that the guard's pod needs; its AWS role comes from its service account."""
        aws = self.account(cluster.region)
        return GuardAccess(cluster=cluster, environment={"AWS_REGION": aws.region})

    def halt(self, cluster: ClusterSpec) -> Halt:
        """Start to scale the GPU node groups to zero nodes."""
        with self.explained():
            return scale_to_zero.halt(self.account(cluster.region), cluster.title)

    def pools(self, cluster: ClusterSpec) -> Sequence[PoolSize]:
        """Return the GPU node groups."""
        with self.explained():
            return scale_to_zero.sizes(self.account(cluster.region), cluster.title)

    def resize(self, cluster: ClusterSpec, pool: str, nodes: int) -> str:
        """Give a node group another number of nodes."""
        with self.explained():
            return scale_to_zero.resize(self.account(cluster.region), cluster.title, pool, nodes)

    def spot_now(self, cluster: ClusterSpec, types: Sequence[str]) -> Sequence[Price]:
        """Ask EC2, which has a price for each zone."""
        with self.explained():
            return price_list.spot(self.account(cluster.region), types)

    def move_end(self, cluster: ClusterSpec, pools: Sequence[str]) -> None:
        """Move the schedules that scale the GPU node groups to zero to the cluster's expiry."""
        with self.explained():
            end_schedule.move(self.account(cluster.region), cluster.title, pools, cluster.expires or "")

    def layout(self, cluster: ClusterSpec) -> AwsLayout:
        """Return the names and zones; they are read from AWS if the spec names no zones."""
        aws = self.account(cluster.region)
        types = offers.types_of(cluster)
        offers.refuse(types)  # before a region without the type is the reason
        with self.explained():
            chosen = zones.choose(aws, cluster, types)
            settings = settings_of(cluster)
            resolved = {
                "admins": admins.principals(aws, settings.admins),
                "kms_key": encryption.named(aws, settings),
            }
            return AwsLayout(
                cluster=cluster,
                settings=settings.model_copy(update=resolved),
                region=aws.region,
                account=aws.account,
                partition=aws.partition,
                gpu_zones=chosen.gpu,
                zones=chosen.all,
                instance_types=types,
                hardware=offers.hardware_of(types, aws),
                offered=zones.offering(aws, types),
                endpoint_zones=endpoints.zones_of(aws, settings.endpoints),
                prices=aws.prices,
            )
