"""The provider: puts together what the other files of this folder describe."""

from __future__ import annotations

from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.cloud import offers as shop
from cloudrec.cloud.driver import search_all
from cloudrec.cloud.prices import saved_at
from cloudrec.home import make_private
from cloudrec.providers.gcp import (
    access,
    apis,
    errors,
    firewall,
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
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from cloudrec.engine.graph import Driver, Observed, Resource
    from cloudrec.home import Home
    from cloudrec.provider import Access, Finding, Offer
    from cloudrec.providers.gcp.driver import GcpDriver
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
    placement,
    nodes,
    lustre,
)


class GcpProvider:
    """Google Cloud as a provider."""

    name = "gcp"
    control_plane = "cluster"
    settle_s = 20.0  # lists are right at once as a rule, policies after seconds
    kinds: Mapping[str, AbstractSet[str]] = MappingProxyType(
        {kind: needs for part in _PARTS for kind, needs in part.KINDS.items()}
    )

    def __init__(self, home: Home, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = environment
        self._regions: dict[str | None, Gcp] = {}

    def gcp(self, region: str | None = None) -> Gcp:
        """Return the project in this region; in the environment's own when None."""
        if region not in self._regions:
            project = self._regions[region] = Gcp(self._environment, region)
            refreshed = self._price_file(project.given_region)
            if refreshed.exists():
                project.prices = saved_at(refreshed, prices.shipped())
        return self._regions[region]

    def _price_file(self, region: str) -> Path:
        return self._home.root / "prices" / f"{self.name}-{region}.json"

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
        gcp = self.gcp(cluster.region)
        types = list({**offers.KNOWN, **dict.fromkeys(cluster.instance_types)})
        with _told_plainly():
            if refresh:
                gcp.prices = prices.refresh(gcp, gcp.region, types)
                make_private(self._price_file(gcp.region).parent)
                gcp.prices.save(self._price_file(gcp.region))
            zones_of = zones.offering(gcp, types)
            spot = prices.spot(gcp.prices, types, gcp.zones)
            hardware = offers.hardware_of(types, gcp)
        return shop.catalog(hardware, zones_of, gcp.prices, spot, spot_priced=gcp.prices.label)

    def preflight(self, cluster: ClusterSpec) -> Sequence[Finding]:
        """Look at credentials, APIs, quotas, offers and leftovers."""
        gcp = self.gcp(cluster.region)
        findings = quota.credentials(gcp)
        if not all(finding.ok for finding in findings):
            return findings  # nothing else can be seen without
        with _told_plainly():
            return [*findings, *quota.findings(gcp, self.layout(cluster))]

    def resources(self, cluster: ClusterSpec) -> Sequence[Resource]:
        """Describe what should exist."""
        layout = self.layout(cluster)
        return [resource for part in _PARTS for resource in part.resources(layout)]

    def drivers(self, cluster: ClusterSpec) -> Mapping[str, Driver]:
        """Return the drivers of all kinds."""
        return dict(self._drivers(self.gcp(cluster.region)))

    def search(self, cluster: str | None, *, locations: Sequence[str] = ()) -> Sequence[Observed]:
        """Let each kind's driver look in each region."""
        with _told_plainly():
            drivers = [
                driver
                for region in locations or (None,)
                for driver in self._drivers(self.gcp(region)).values()
            ]
            return search_all(drivers, cluster)

    def access(self, cluster: ClusterSpec) -> Access:
        """Tell how to reach the cluster, and write its kubeconfig."""
        with _told_plainly():
            return access.of(
                self.layout(cluster), self.gcp(cluster.region), self._home, dict(self._environment)
            )

    def layout(self, cluster: ClusterSpec) -> Layout:
        """Decide names and zones; asks Google for the zones where the spec does not name them."""
        gcp = self.gcp(cluster.region)
        types = offers.types_of(cluster)
        with _told_plainly():
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

    @staticmethod
    def _drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
        return {kind: driver for part in _PARTS for kind, driver in part.drivers(gcp).items()}


@contextmanager
def _told_plainly() -> Iterator[None]:
    """Say what Google's errors mean."""
    try:
        yield
    except errors.REFUSALS as error:
        raise errors.explain(error) from error
