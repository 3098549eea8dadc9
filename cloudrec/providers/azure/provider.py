"""The provider: puts together what the other files of this folder describe."""

from __future__ import annotations

from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from azure.core.exceptions import AzureError

from cloudrec.cloud import offers as shop
from cloudrec.cloud.driver import search_all
from cloudrec.home import make_private
from cloudrec.providers.azure import (
    access,
    errors,
    federation,
    groups,
    identity,
    leftovers,
    lustre,
    network,
    nodes,
    offers,
    prices,
    quota,
    registry,
    storage,
    zones,
)
from cloudrec.providers.azure import cluster as control_plane
from cloudrec.providers.azure.client import Azure
from cloudrec.providers.azure.layout import Layout
from cloudrec.providers.azure.settings import settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from cloudrec.engine.graph import Driver, Observed, Resource
    from cloudrec.home import Home
    from cloudrec.provider import Access, Finding, Offer
    from cloudrec.providers.azure.driver import AzureDriver
    from cloudrec.spec.models import ClusterSpec

_EVERYWHERE = "global"  # the location of what is in no region

# Each part describes its resources, gives its drivers, and tells which kinds one of a kind may need.
_PARTS = (
    groups,
    network,
    identity,
    federation,
    storage,
    registry,
    leftovers,
    control_plane,
    nodes,
    lustre,
)


class AzureProvider:
    """Microsoft Azure as a provider."""

    name = "azure"
    control_plane = "cluster"
    settle_s = 20.0
    kinds: Mapping[str, AbstractSet[str]] = MappingProxyType(
        {kind: needs for part in _PARTS for kind, needs in part.KINDS.items()}
    )

    def __init__(self, home: Home, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = environment
        self._subscriptions: dict[str | None, Azure] = {}

    def azure(self, region: str | None = None) -> Azure:
        """Return the subscription in this region; in the environment's own when None."""
        if region not in self._subscriptions:
            azure = self._subscriptions[region] = Azure(self._environment, region)
            refreshed = self._price_file(azure.given_region)
            if refreshed.exists():
                azure.prices = prices.saved(refreshed)
        return self._subscriptions[region]

    def _price_file(self, region: str) -> Path:
        return self._home.root / "prices" / f"{self.name}-{region}.json"

    def check(self, cluster: ClusterSpec) -> None:
        """Validate the settings."""
        settings_of(cluster)

    def offers(self, cluster: ClusterSpec) -> Sequence[Offer]:
        """Return the nodes that would serve, in order of preference."""
        layout = self.layout(cluster)
        with _told_plainly():
            spot = self._spot(layout.region, layout.offered)
        made = shop.offers(nodes.places(layout), layout.hardware, layout.prices, spot)
        return offers.located(made, layout.region)

    def catalog(self, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
        """Return every kind of GPU node that the region has, on demand and as spot."""
        azure = self.azure(cluster.region)
        types = list({**offers.KNOWN, **dict.fromkeys(offers.types_of(cluster))})
        with _told_plainly():
            if refresh:
                azure.prices = prices.refresh(prices.PriceList(self._environment), azure.region, types)
                make_private(self._price_file(azure.region).parent)
                azure.prices.save(self._price_file(azure.region))
            sizes = offers.skus(azure, types)
            offered = zones.offered(sizes, ())
            hardware = offers.hardware_of(list(sizes), sizes, azure.region)
            listed = shop.catalog(hardware, offered, azure.prices, self._spot(azure.region, offered))
        return offers.located(listed, azure.region)

    def _spot(self, region: str, offered: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], float]:
        """Return the spot prices by size and zone; Azure has one for all zones of a region."""
        usd = prices.spot(prices.PriceList(self._environment), region, list(offered))
        return {
            (name, zone): usd[name] for name, zones_of in offered.items() for zone in zones_of if name in usd
        }

    def preflight(self, cluster: ClusterSpec) -> Sequence[Finding]:
        """Look at credentials, the subscription, quotas, sizes, names and leftovers."""
        azure = self.azure(cluster.region)
        findings = quota.credentials(azure)
        if not all(finding.ok for finding in findings):
            return findings  # nothing else can be seen without
        with _told_plainly():
            return [*findings, *quota.findings(azure, self.layout(cluster))]

    def resources(self, cluster: ClusterSpec) -> Sequence[Resource]:
        """Describe what should exist."""
        layout = self.layout(cluster)
        return [resource for part in _PARTS for resource in part.resources(layout)]

    def drivers(self, cluster: ClusterSpec) -> Mapping[str, Driver]:
        """Return the drivers of all kinds."""
        return dict(self._drivers(self.azure(cluster.region)))

    def search(self, cluster: str | None, *, locations: Sequence[str] = ()) -> Sequence[Observed]:
        """Let each kind's driver look: a list tells of all regions, of which only those asked for count."""
        wanted = {*locations, _EVERYWHERE}
        with _told_plainly():
            found = search_all(self._drivers(self.azure()).values(), cluster)
        return [seen for seen in found if not locations or seen.location in wanted]

    def access(self, cluster: ClusterSpec) -> Access:
        """Tell how to reach the cluster, and write its kubeconfig."""
        with _told_plainly():
            return access.of(
                self.layout(cluster), self.azure(cluster.region), self._home, dict(self._environment)
            )

    def layout(self, cluster: ClusterSpec) -> Layout:
        """Decide names and zones; asks Azure for the zones where the spec does not name them."""
        azure, settings = self.azure(cluster.region), settings_of(cluster)
        types = offers.types_of(cluster)
        with _told_plainly():
            sizes = offers.skus(azure, types)
            system = offers.skus(azure, [settings.system_vm_size]).get(settings.system_vm_size)
            return Layout(
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
                prices=azure.prices,
            )

    @staticmethod
    def _drivers(azure: Azure) -> Mapping[str, AzureDriver]:
        return {kind: driver for part in _PARTS for kind, driver in part.drivers(azure).items()}


@contextmanager
def _told_plainly() -> Iterator[None]:
    """Say what Azure's errors mean."""
    try:
        yield
    except (AzureError, errors.OperationFailedError) as error:
        raise errors.explain(error) from error
