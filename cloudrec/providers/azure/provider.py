"""The provider: puts together what the other files of this folder describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.core.exceptions import AzureError

from cloudrec.cloud import offers as shop
from cloudrec.cloud.driver import search_all
from cloudrec.cloud.operated import OperationFailedError
from cloudrec.cloud.provider import CloudProvider
from cloudrec.provider import GuardAccess
from cloudrec.providers.azure import (
    access,
    errors,
    federation,
    groups,
    guard,
    halting,
    identity,
    leftovers,
    lustre,
    network,
    nodes,
    offers,
    prices,
    quota,
    registry,
    registry_login,
    storage,
    zones,
)
from cloudrec.providers.azure import cluster as control_plane
from cloudrec.providers.azure.client import Azure
from cloudrec.providers.azure.layout import Layout
from cloudrec.providers.azure.settings import settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Observed
    from cloudrec.errors import CloudrecError
    from cloudrec.provider import Access, Finding, Halt, Offer, Registry
    from cloudrec.spec.models import ClusterSpec

_EVERYWHERE = "global"  # the location of what is in no region

# Each part describes its resources, gives its drivers, and tells which kinds one of a kind may need.
_PARTS = (
    groups,
    network,
    identity,
    federation,
    guard,
    storage,
    registry,
    leftovers,
    control_plane,
    nodes,
    lustre,
)


class AzureProvider(CloudProvider[Azure, Layout]):
    """Microsoft Azure as a provider."""

    name = "azure"
    parts = _PARTS
    refusals = (AzureError, OperationFailedError)

    def reach(self, region: str | None) -> Azure:
        """Return the subscription in this region; in the environment's own when None."""
        return Azure(self.environment, region)

    def explain(self, error: Exception) -> CloudrecError:
        """Say what Azure's refusal means."""
        return errors.explain(error)

    def credentials(self, account: Azure) -> Sequence[Finding]:
        """Check that Azure takes the credentials."""
        return quota.credentials(account)

    def findings(self, account: Azure, layout: Layout) -> Sequence[Finding]:
        """Look at quotas, offers, names that are taken and leftovers."""
        return quota.findings(account, layout)

    def check(self, cluster: ClusterSpec) -> None:
        """Validate the settings."""
        settings_of(cluster)

    def offers(self, cluster: ClusterSpec) -> Sequence[Offer]:
        """Return the nodes that would serve, in order of preference."""
        layout = self.layout(cluster)
        with self.told_plainly():
            spot = self._spot(layout.region, layout.offered)
        made = shop.offers(nodes.places(layout), layout.hardware, layout.prices, spot)
        return offers.located(made, layout.region)

    def catalog(self, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
        """Return every kind of GPU node that the region has, on demand and as spot."""
        azure = self.account(cluster.region)
        types = list({**offers.KNOWN, **dict.fromkeys(offers.types_of(cluster))})
        with self.told_plainly():
            if refresh:
                self.keep_prices(
                    azure, prices.refresh(prices.PriceList(self.environment), azure.region, types)
                )
            sizes = offers.skus(azure, types)
            offered = zones.offered(sizes, ())
            hardware = offers.hardware_of(list(sizes), sizes, azure.region)
            listed = shop.catalog(hardware, offered, azure.prices, self._spot(azure.region, offered))
        return offers.located(listed, azure.region)

    def _spot(self, region: str, offered: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], float]:
        """Return the spot prices by size and zone; Azure has one for all zones of a region."""
        usd = prices.spot(prices.PriceList(self.environment), region, list(offered))
        return {
            (name, zone): usd[name] for name, zones_of in offered.items() for zone in zones_of if name in usd
        }

    def search(self, cluster: str | None, *, locations: Sequence[str] = ()) -> Sequence[Observed]:
        """Let each kind's driver look: a list tells of all regions, of which only those asked for count."""
        wanted = {*locations, _EVERYWHERE}
        with self.told_plainly():
            found = search_all(self.drivers_of(self.account()).values(), cluster)
        return [seen for seen in found if not locations or seen.location in wanted]

    def access(self, cluster: ClusterSpec) -> Access:
        """Tell how to reach the cluster, and write its kubeconfig."""
        with self.told_plainly():
            return access.of(
                self.layout(cluster), self.account(cluster.region), self.home, dict(self.environment)
            )

    def registry(self, cluster: ClusterSpec) -> Registry:
        """Tell where the cluster's images go, and log in there."""
        with self.told_plainly():
            return registry_login.login(
                self.layout(cluster), self.account(cluster.region), dict(self.environment)
            )

    def guard(self, cluster: ClusterSpec) -> GuardAccess:
        """Tell what the guard needs to be the identity that may scale the pools."""
        azure = self.account(cluster.region)
        with self.told_plainly():
            return GuardAccess(
                cluster=cluster,
                annotations={"azure.workload.identity/client-id": halting.client_id(azure, cluster.title)},
                pod_labels={"azure.workload.identity/use": "true"},
                environment={"AZURE_SUBSCRIPTION_ID": azure.subscription, "AZURE_REGION": azure.region},
            )

    def halt(self, cluster: ClusterSpec) -> Halt:
        """Begin to scale the GPU pools to no nodes."""
        with self.told_plainly():
            return halting.halt(self.account(cluster.region), cluster.title)

    def layout(self, cluster: ClusterSpec) -> Layout:
        """Decide names and zones; asks Azure for the zones where the spec does not name them."""
        azure, settings = self.account(cluster.region), settings_of(cluster)
        types = offers.types_of(cluster)
        with self.told_plainly():
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
