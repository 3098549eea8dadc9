"""The provider: puts together what the other files of this folder describe."""

from __future__ import annotations

from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from cloudrec.cloud import offers as shop
from cloudrec.cloud.driver import search_all
from cloudrec.cloud.prices import saved_at
from cloudrec.home import make_private
from cloudrec.providers.aws import (
    access,
    addons,
    admins,
    encryption,
    endpoints,
    errors,
    firewall,
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
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from cloudrec.engine.graph import Driver, Observed, Resource
    from cloudrec.home import Home
    from cloudrec.provider import Access, Finding, Offer
    from cloudrec.providers.aws.driver import AwsDriver
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


class AwsProvider:
    """Amazon Web Services as a provider."""

    name = "aws"
    control_plane = "cluster"
    settle_s = 20.0  # EC2's listings by tag lag by seconds
    kinds: Mapping[str, AbstractSet[str]] = MappingProxyType(
        {kind: needs for part in _PARTS for kind, needs in part.KINDS.items()}
    )

    def __init__(self, home: Home, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = environment
        self._accounts: dict[str | None, Aws] = {}

    def aws(self, region: str | None = None) -> Aws:
        """Return the account in this region; in the environment's own when None."""
        if region not in self._accounts:
            account = self._accounts[region] = Aws(self._environment, region)
            refreshed = self._price_file(account.given_region)
            if refreshed.exists():
                account.prices = saved_at(refreshed, prices.shipped())
        return self._accounts[region]

    def _price_file(self, region: str) -> Path:
        return self._home.root / "prices" / f"{self.name}-{region}.json"

    def check(self, cluster: ClusterSpec) -> None:
        """Validate the settings."""
        settings_of(cluster)

    def offers(self, cluster: ClusterSpec) -> Sequence[Offer]:
        """Return the nodes that would serve, in order of preference."""
        layout, aws = self.layout(cluster), self.aws(cluster.region)
        with _told_plainly():
            spot = prices.spot(aws, layout.instance_types)
        return shop.offers(nodes.places(layout), layout.hardware, aws.prices, spot)

    def catalog(self, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
        """Return every kind of GPU node that has a price, on demand and as spot."""
        aws = self.aws(cluster.region)
        types = list({**offers.KNOWN, **dict.fromkeys(cluster.instance_types)})
        with _told_plainly():
            if refresh:
                price_list = Aws(self._environment, prices.PRICE_LIST_REGION)
                aws.prices = prices.refresh(price_list, aws.region, types)
                make_private(self._price_file(aws.region).parent)
                aws.prices.save(self._price_file(aws.region))
            zones_of = zones.offering(aws, types)
            spot = prices.spot(aws, types)
            hardware = offers.hardware_of(types, aws)
        return shop.catalog(hardware, zones_of, aws.prices, spot)

    def preflight(self, cluster: ClusterSpec) -> Sequence[Finding]:
        """Look at credentials, quotas, offers and leftovers."""
        aws = self.aws(cluster.region)
        findings = quota.credentials(aws)
        if not all(finding.ok for finding in findings):
            return findings  # nothing else can be seen without
        with _told_plainly():
            return [*findings, *quota.findings(aws, self.layout(cluster))]

    def resources(self, cluster: ClusterSpec) -> Sequence[Resource]:
        """Describe what should exist."""
        layout = self.layout(cluster)
        return [resource for part in _PARTS for resource in part.resources(layout)]

    def drivers(self, cluster: ClusterSpec) -> Mapping[str, Driver]:
        """Return the drivers of all kinds."""
        return dict(self._drivers(self.aws(cluster.region)))

    def search(self, cluster: str | None, *, locations: Sequence[str] = ()) -> Sequence[Observed]:
        """Let each kind's driver look in each region."""
        drivers = [
            driver for region in locations or (None,) for driver in self._drivers(self.aws(region)).values()
        ]
        with _told_plainly():
            return search_all(drivers, cluster)

    def access(self, cluster: ClusterSpec) -> Access:
        """Tell how to reach the cluster, and write its kubeconfig."""
        with _told_plainly():
            return access.of(
                self.layout(cluster), self.aws(cluster.region), self._home, dict(self._environment)
            )

    def layout(self, cluster: ClusterSpec) -> Layout:
        """Decide names and zones; asks AWS for the zones where the spec does not name them."""
        aws = self.aws(cluster.region)
        types = offers.types_of(cluster)
        with _told_plainly():
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

    @staticmethod
    def _drivers(aws: Aws) -> Mapping[str, AwsDriver]:
        return {kind: driver for part in _PARTS for kind, driver in part.drivers(aws).items()}


@contextmanager
def _told_plainly() -> Iterator[None]:
    """Say what AWS's errors mean."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise errors.explain(error) from error
