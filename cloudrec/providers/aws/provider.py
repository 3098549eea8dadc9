"""The provider: puts together what the other files of this folder describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from cloudrec.cloud import offers as shop
from cloudrec.cloud.provider import CloudProvider
from cloudrec.provider import GuardAccess
from cloudrec.providers.aws import (
    access,
    addons,
    admins,
    encryption,
    endpoints,
    errors,
    firewall,
    halting,
    identity,
    leftovers,
    logs,
    lustre,
    nat,
    network,
    nodes,
    offers,
    prices,
    quota,
    registry,
    routes,
    storage,
    zones,
)
from cloudrec.providers.aws import cluster as control_plane
from cloudrec.providers.aws.client import Aws
from cloudrec.providers.aws.layout import Layout
from cloudrec.providers.aws.settings import settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.errors import CloudrecError
    from cloudrec.provider import Access, Finding, Halt, Offer, Registry
    from cloudrec.spec.models import ClusterSpec

# Each part describes its resources, gives its drivers, and tells which kinds one of a kind may need.
_PARTS = (
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


class AwsProvider(CloudProvider[Aws, Layout]):
    """Amazon Web Services as a provider."""

    name = "aws"
    settle_s = 20.0  # EC2's listings by tag lag by seconds
    parts = _PARTS
    refusals = (ClientError, BotoCoreError)

    def reach(self, region: str | None) -> Aws:
        """Return the account in this region; in the environment's own when None."""
        return Aws(self.environment, region)

    def explain(self, error: Exception) -> CloudrecError:
        """Say what AWS's refusal means."""
        return errors.explain(error)

    def credentials(self, account: Aws) -> Sequence[Finding]:
        """Check that AWS takes the credentials."""
        return quota.credentials(account)

    def findings(self, account: Aws, layout: Layout) -> Sequence[Finding]:
        """Look at quotas, offers, names that are taken and leftovers."""
        return quota.findings(account, layout)

    def check(self, cluster: ClusterSpec) -> None:
        """Validate the settings."""
        settings_of(cluster)

    def offers(self, cluster: ClusterSpec) -> Sequence[Offer]:
        """Return the nodes that would serve, in order of preference."""
        layout, aws = self.layout(cluster), self.account(cluster.region)
        with self.told_plainly():
            spot = prices.spot(aws, layout.instance_types)
        return shop.offers(nodes.places(layout), layout.hardware, aws.prices, spot)

    def catalog(self, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
        """Return every kind of GPU node that has a price, on demand and as spot."""
        aws = self.account(cluster.region)
        types = list({**offers.KNOWN, **dict.fromkeys(cluster.instance_types)})
        with self.told_plainly():
            if refresh:
                price_list = Aws(self.environment, prices.PRICE_LIST_REGION)
                self.keep_prices(aws, prices.refresh(price_list, aws.region, types))
            zones_of = zones.offering(aws, types)
            spot = prices.spot(aws, types)
            hardware = offers.hardware_of(types, aws)
        return shop.catalog(hardware, zones_of, aws.prices, spot)

    def access(self, cluster: ClusterSpec) -> Access:
        """Tell how to reach the cluster, and write its kubeconfig."""
        with self.told_plainly():
            return access.of(
                self.layout(cluster), self.account(cluster.region), self.home, dict(self.environment)
            )

    def registry(self, cluster: ClusterSpec) -> Registry:
        """Tell where the cluster's images go, and log in there."""
        with self.told_plainly():
            return registry.login(self.layout(cluster), self.account(cluster.region))

    def guard(self, cluster: ClusterSpec) -> GuardAccess:
        """Tell what the guard needs to be the identity that may scale the pools."""
        aws = self.account(cluster.region)
        return GuardAccess(cluster=cluster, environment={"AWS_REGION": aws.region})

    def halt(self, cluster: ClusterSpec) -> Halt:
        """Begin to scale the GPU node groups to no nodes."""
        with self.told_plainly():
            return halting.halt(self.account(cluster.region), cluster.title)

    def layout(self, cluster: ClusterSpec) -> Layout:
        """Decide names and zones; asks AWS for the zones where the spec does not name them."""
        aws = self.account(cluster.region)
        types = offers.types_of(cluster)
        with self.told_plainly():
            chosen = zones.choose(aws, cluster, types)
            return Layout(
                cluster=cluster,
                settings=settings_of(cluster),
                region=aws.region,
                account=aws.account,
                partition=aws.partition,
                gpu_zones=chosen.gpu,
                zones=chosen.all,
                instance_types=types,
                hardware=offers.hardware_of(types, aws),
                offered=zones.offering(aws, types),
                prices=aws.prices,
            )
