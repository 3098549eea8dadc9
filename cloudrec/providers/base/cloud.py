"""The base of the cloud providers. A provider consists of parts: modules that describe kinds of resources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from cloudrec.errors import CloudrecError
from cloudrec.home import make_private
from cloudrec.providers.base.audit import Audit
from cloudrec.providers.base.driver import search_all
from cloudrec.providers.base.offers import ON_DEMAND
from cloudrec.providers.base.prices import renewed_at, save, today
from cloudrec.providers.base.protocol import ClosedApi, StorageTraffic
from cloudrec.providers.base.reading import answers_read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from cloudrec.engine.graph import Driver, Observed, Resource
    from cloudrec.findings import Finding
    from cloudrec.home import Home
    from cloudrec.providers.base.driver import CloudDriver
    from cloudrec.providers.base.prices import Price, Prices
    from cloudrec.spec.models import ClusterSpec


class Account(Protocol):
    """An account (a subscription, a project) in one region, as a cloud's client reaches it."""

    prices: Prices

    @property
    def given_region(self) -> str:
        """The configured region, not validated; empty if none is configured."""
        ...


_REGIONS_AT_ONCE = 8
A = TypeVar("A", bound=Account)
L = TypeVar("L")
_A_contra = TypeVar("_A_contra", contravariant=True)
_L_contra = TypeVar("_L_contra", contravariant=True)


class ProviderPart(Protocol[_A_contra, _L_contra]):
    """A module that describes some kinds of resources of a provider."""

    @property
    def KINDS(self) -> Mapping[str, AbstractSet[str]]:  # noqa: N802 - a module's constant
        """Kind -> kinds that it may need, for each of its kinds."""
        ...

    def resources(self, layout: _L_contra, /) -> Sequence[Resource]:
        """Return the requested resources of its kinds."""
        ...

    def drivers(self, account: _A_contra, /) -> Mapping[str, CloudDriver]:
        """Return kind -> driver, for each of its kinds."""
        ...


class CloudProvider(ABC, Generic[A, L]):
    """The behaviour that all cloud providers share.

    Attributes:
        parts: the modules that describe its resources.
        refusals: the exceptions of its SDK.
        kinds: kind -> kinds that it may need, for all kinds of the parts.
        admits_by_address: whether a public Kubernetes API admits callers by address; if not, by identity.
        can_open_api: whether the cloud can make the private API of an existing cluster public.
        usual_minutes: kind -> the minutes that one takes to create, of the kinds that follow one another and
            take longest.
        prices_hold: days for which `up` uses prices of the cloud's list before it asks again.
    """

    name: ClassVar[str]
    admits_by_address: ClassVar[bool] = False
    can_open_api: ClassVar[bool] = True
    prices_hold: ClassVar[int] = 1
    usual_minutes: ClassVar[Mapping[str, tuple[int, int]]]
    control_plane = "cluster"
    settle_s = 20.0
    parts: ClassVar[Sequence[ProviderPart[Any, Any]]]  # Any: a ClassVar cannot name the parameters A and L
    refusals: ClassVar[tuple[type[Exception], ...]]
    kinds: ClassVar[Mapping[str, AbstractSet[str]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.kinds = MappingProxyType(
            {kind: needs for part in cls.parts for kind, needs in part.KINDS.items()}
        )

    def __init__(self, home: Home, environment: Mapping[str, str]) -> None:
        self.home = home
        self.environment = environment
        self._accounts: dict[str | None, A] = {}  # by region

    @abstractmethod
    def reach(self, region: str | None) -> A:
        """Return the account in this region; None is the environment's region."""

    @abstractmethod
    def layout(self, cluster: ClusterSpec) -> L:
        """Return a cluster's names and zones; asks the cloud for the zones if the spec does not name them."""

    @abstractmethod
    def explain(self, error: Exception) -> CloudrecError:
        """Return the SDK's error as one for users, with a remedy."""

    @abstractmethod
    def credentials(self, account: A) -> Sequence[Finding]:
        """Check that the cloud accepts the credentials."""

    @abstractmethod
    def findings(self, account: A, layout: L) -> Sequence[Finding]:
        """Make the other checks of `up`; called only if the credentials are accepted."""

    @abstractmethod
    def account_of(self, cluster: ClusterSpec) -> str:
        """Return the account of the credentials, with the endpoint if a custom one is set."""

    @abstractmethod
    def node_types(self, cluster: ClusterSpec) -> Sequence[str]:
        """Return the types of all nodes that the cluster may have, with those that do not train."""

    @abstractmethod
    def asked_prices(self, account: A, types: Sequence[str]) -> Sequence[Price]:
        """Ask the cloud's price list for nodes of these types on demand, and for its other prices."""

    @abstractmethod
    def spot_prices(self, account: A, types: Sequence[str]) -> Sequence[Price]:
        """Ask the cloud for the current spot prices of these types; empty if the list above has them."""

    def account(self, region: str | None = None) -> A:
        """Return the account in this region, with the prices of the last refresh; always the same object."""
        if region not in self._accounts:
            account = self._accounts[region] = self.reach(region)
            table = renewed_at(self._price_file(account.given_region), account.prices)
            account.prices = table.within(account.given_region)
        return self._accounts[region]

    def keep_prices(self, account: A, rows: Sequence[Price]) -> None:
        """Use these prices from now on, and save them for later commands."""
        account.prices = account.prices.renewed(rows).within(account.given_region)
        file = self._price_file(account.given_region)
        make_private(file.parent)
        save(file, rows)

    def _price_file(self, region: str) -> Path:
        return self.home.root / "prices" / f"{self.name}-{region}.csv"

    def price_region(self, cluster: ClusterSpec) -> str:
        """Return the region of the spec, or else of the environment."""
        return self.account(cluster.region).given_region

    def storage_traffic(self, cluster: ClusterSpec) -> StorageTraffic | None:
        """Return what the cluster's reads of another cluster's storage cost; None in one region."""
        here, shared = self.price_region(cluster), cluster.storage
        if shared is None or shared.region == here:
            return None
        price = self.account(shared.region).prices.traffic(here)
        if price is None:
            return StorageTraffic(usd_per_gb=None)
        return StorageTraffic(usd_per_gb=price.usd, label=price.label)

    def renew_prices(self, cluster: ClusterSpec) -> str:
        """Ask the cloud for the prices of a cluster's nodes; return why it gave none, else nothing.

        The list is not asked again for what it gave in the last days (`prices_hold`); spot prices are.
        """
        account = self.account(cluster.region)
        oldest = (date.fromisoformat(today()) - timedelta(days=self.prices_hold)).isoformat()
        types = self.node_types(cluster)
        known = {name: account.prices.price(name, ON_DEMAND) for name in types}
        stale = [name for name, price in known.items() if price is None or price.as_of <= oldest]
        try:
            with self.explained():
                rows = [*self.asked_prices(account, stale)] if stale else []
                if cluster.capacity != ON_DEMAND:
                    rows += self.spot_prices(account, types)
        except CloudrecError as error:
            return error.message
        if rows:
            self.keep_prices(account, rows)
        return ""

    def preflight(self, cluster: ClusterSpec) -> Sequence[Finding]:
        """Check the credentials, and everything else if they are accepted."""
        account = self.account(cluster.region)
        with self.explained():
            found = self.credentials(account)
        if not all(finding.ok for finding in found):
            return found  # every other check needs credentials
        with self.explained():
            return [*found, *self.findings(account, self.layout(cluster))]

    def resources(self, cluster: ClusterSpec) -> Sequence[Resource]:
        """Return the resources of a cluster, from all parts."""
        layout = self.layout(cluster)
        return [resource for part in self.parts for resource in part.resources(layout)]

    def drivers(self, cluster: ClusterSpec) -> Mapping[str, Driver]:
        """Return kind -> driver, in the spec's region."""
        return dict(self.drivers_of(self.account(cluster.region)))

    def drivers_of(self, account: A) -> Mapping[str, CloudDriver]:
        """Return kind -> driver, in an account's region."""
        return {kind: driver for part in self.parts for kind, driver in part.drivers(account).items()}

    def closed_api(self, cluster: ClusterSpec) -> ClosedApi | None:
        """Return the Kubernetes API if the spec makes it private; else None."""
        return ClosedApi(cluster=cluster.title, can_change=self.can_open_api) if cluster.is_private else None

    def locations(self, cluster: ClusterSpec) -> Sequence[str]:
        """Return the spec's region; empty if it names none."""
        return (cluster.region,) if cluster.region else ()

    def search(self, cluster: str | None, *, locations: Sequence[str] = ()) -> Sequence[Observed]:
        """Search with each kind's driver in each region; see `Provider.search`."""
        with self.explained():
            accounts = [self.account(region) for region in locations or (None,)]
            looking = [driver for account in accounts for driver in self.drivers_of(account).values()]
            return search_all(looking, cluster)

    def audit(
        self, cluster: str | None, managed: Sequence[Observed], *, locations: Sequence[str] = ()
    ) -> Audit:
        """Audit each region at the same time; see `AuditsAccount.audit`."""
        with self.explained():
            accounts = [self.account(region) for region in locations or (None,)]
            with ThreadPoolExecutor(_REGIONS_AT_ONCE, thread_name_prefix="audit") as pool:
                return Audit.of(pool.map(lambda account: self.audited(account, cluster, managed), accounts))

    def audited(self, account: A, cluster: str | None, managed: Sequence[Observed]) -> Audit:
        """Return what no driver manages in an account's region; a cloud without an audit reports that."""
        del account, cluster, managed
        return Audit(unsearched=(f"{self.name}: resources that cloudrec did not make itself",))

    def regions(self) -> Sequence[str]:
        """Return the regions that are enabled for the account; none for a cloud without an audit."""
        return ()

    @staticmethod
    def reached_at(account: str, endpoint: str) -> str:
        """Return an account's name, with the endpoint unless it is empty (the cloud's own)."""
        return f"{account} at {endpoint.rstrip('/')}" if endpoint else account

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise the SDK's errors in the block as errors for users."""
        try:
            with answers_read():
                yield
        except self.refusals as error:
            raise self.explain(error) from error
