"""The provider: puts together what the other files of this folder describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.cloud import offers as shop
from cloudrec.cloud.provider import CloudProvider
from cloudrec.provider import GuardAccess
from cloudrec.providers.gcp import (
    access,
    apis,
    errors,
    firewall,
    guard,
    halting,
    identity,
    leftovers,
    lustre,
    nat,
    network,
    nodes,
    offers,
    placement,
    prices,
    quota,
    registry,
    storage,
    zones,
)
from cloudrec.providers.gcp import cluster as control_plane
from cloudrec.providers.gcp.client import Gcp
from cloudrec.providers.gcp.layout import Layout
from cloudrec.providers.gcp.settings import settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.errors import CloudrecError
    from cloudrec.provider import Access, Finding, Halt, Offer, Registry
    from cloudrec.spec.models import ClusterSpec

# Each part describes its resources, gives its drivers, and tells which kinds one of a kind may need.
_PARTS = (
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
    placement,
    nodes,
    lustre,
)


class GcpProvider(CloudProvider[Gcp, Layout]):
    """Google Cloud as a provider."""

    name = "gcp"
    settle_s = 20.0  # lists are right at once as a rule, policies after seconds
    parts = _PARTS
    refusals = errors.REFUSALS

    def reach(self, region: str | None) -> Gcp:
        """Return the project in this region; in the environment's own when None."""
        return Gcp(self.environment, region)

    def explain(self, error: Exception) -> CloudrecError:
        """Say what Google's refusal means."""
        return errors.explain(error)

    def credentials(self, account: Gcp) -> Sequence[Finding]:
        """Check that Google takes the credentials."""
        return quota.credentials(account)

    def findings(self, account: Gcp, layout: Layout) -> Sequence[Finding]:
        """Look at quotas, offers, names that are taken and leftovers."""
        return quota.findings(account, layout)

    def check(self, cluster: ClusterSpec) -> None:
        """Validate the settings."""
        settings_of(cluster)

    def offers(self, cluster: ClusterSpec) -> Sequence[Offer]:
        """Return the nodes that would serve, in order of preference."""
        layout = self.layout(cluster)
        spot = prices.spot(layout.prices, layout.instance_types, layout.gpu_zones)
        table = layout.prices
        return shop.offers(nodes.places(layout), layout.hardware, table, spot, spot_priced=table.label)

    def catalog(self, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
        """Return every kind of GPU node that has a price, on demand and as spot."""
        gcp = self.account(cluster.region)
        types = list({**offers.KNOWN, **dict.fromkeys(cluster.instance_types)})
        with self.told_plainly():
            if refresh:
                self.keep_prices(gcp, prices.refresh(gcp, gcp.region, types))
            zones_of = zones.offering(gcp, types)
            spot = prices.spot(gcp.prices, types, gcp.zones)
            hardware = offers.hardware_of(types, gcp)
        return shop.catalog(hardware, zones_of, gcp.prices, spot, spot_priced=gcp.prices.label)

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
        layout = self.layout(cluster)
        told = {
            "GOOGLE_CLOUD_PROJECT": layout.project,
            "GOOGLE_CLOUD_REGION": layout.region,
            halting.CLUSTER: layout.cluster_path,
        }
        return GuardAccess(cluster=cluster, environment=told)

    def halt(self, cluster: ClusterSpec) -> Halt:
        """Begin to scale the GPU pools to no nodes."""
        with self.told_plainly():
            path = self.environment.get(halting.CLUSTER, "")
            return halting.halt(self.account(cluster.region), cluster.title, cluster=path)

    def layout(self, cluster: ClusterSpec) -> Layout:
        """Decide names and zones; asks Google for the zones where the spec does not name them."""
        gcp = self.account(cluster.region)
        types = offers.types_of(cluster)
        with self.told_plainly():
            chosen = zones.choose(gcp, cluster, types)
            return Layout(
                cluster=cluster,
                settings=settings_of(cluster),
                region=gcp.region,
                project=gcp.project,
                number=gcp.number,
                home_zone=chosen.home,
                gpu_zones=chosen.gpu,
                instance_types=types,
                hardware=offers.hardware_of(types, gcp),
                offered=zones.offering(gcp, types),
                prices=gcp.prices,
            )
