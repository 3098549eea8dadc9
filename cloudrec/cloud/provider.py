"""What every cloud's provider does with its parts: the modules that each describe some kinds of resources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from cloudrec.cloud.driver import search_all
from cloudrec.cloud.prices import saved_at
from cloudrec.home import make_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path
    from types import ModuleType

    from cloudrec.cloud.driver import CloudDriver
    from cloudrec.cloud.prices import Prices
    from cloudrec.engine.graph import Driver, Observed, Resource
    from cloudrec.errors import CloudrecError
    from cloudrec.home import Home
    from cloudrec.provider import Finding
    from cloudrec.spec.models import ClusterSpec


class Account(Protocol):
    """An account (a subscription, a project) in one region, as a cloud's client reaches it."""

    prices: Prices

    @property
    def given_region(self) -> str:
        """The region as it is given, be it one or not; empty when it is not."""
        ...


A = TypeVar("A", bound=Account)
L = TypeVar("L")


class CloudProvider(ABC, Generic[A, L]):
    """A cloud as a provider: what no cloud does differently.

    Attributes:
        parts: the modules that describe its resources. Each has `resources(layout)`, `drivers(account)` and
            `KINDS`, which tells which kinds one of a kind may need.
        refusals: what its SDK raises.
        kinds: every kind that a search may show, with the kinds that one of it may need; from the parts.
    """

    name: ClassVar[str]
    control_plane = "cluster"
    settle_s = 20.0
    parts: ClassVar[Sequence[ModuleType]]
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
        self._accounts: dict[str | None, A] = {}

    @abstractmethod
    def reach(self, region: str | None) -> A:
        """Return the account in this region; in the environment's own when None."""

    @abstractmethod
    def layout(self, cluster: ClusterSpec) -> L:
        """Decide names and zones; asks the cloud for the zones where the spec does not name them."""

    @abstractmethod
    def explain(self, error: Exception) -> CloudrecError:
        """Say in a person's words what a refusal means."""

    @abstractmethod
    def credentials(self, account: A) -> Sequence[Finding]:
        """Check that the cloud takes the credentials."""

    @abstractmethod
    def findings(self, account: A, layout: L) -> Sequence[Finding]:
        """Make every other check before `up`."""

    def account(self, region: str | None = None) -> A:
        """Return the account in this region, the same one every time, with the prices that were asked for."""
        if region not in self._accounts:
            account = self._accounts[region] = self.reach(region)
            refreshed = self._price_file(account.given_region)
            if refreshed.exists():
                account.prices = saved_at(refreshed, account.prices)
        return self._accounts[region]

    def keep_prices(self, account: A, prices: Prices) -> None:
        """Reckon with these prices from now on, in later commands too."""
        account.prices = prices
        file = self._price_file(account.given_region)
        make_private(file.parent)
        prices.save(file)

    def _price_file(self, region: str) -> Path:
        return self.home.root / "prices" / f"{self.name}-{region}.json"

    def preflight(self, cluster: ClusterSpec) -> Sequence[Finding]:
        """Look at the credentials, and where they are taken at everything else."""
        account = self.account(cluster.region)
        found = self.credentials(account)
        if not all(finding.ok for finding in found):
            return found  # nothing else can be seen without
        with self.told_plainly():
            return [*found, *self.findings(account, self.layout(cluster))]

    def resources(self, cluster: ClusterSpec) -> Sequence[Resource]:
        """Describe what should exist."""
        layout = self.layout(cluster)
        return [resource for part in self.parts for resource in part.resources(layout)]

    def drivers(self, cluster: ClusterSpec) -> Mapping[str, Driver]:
        """Return the drivers of all kinds."""
        return dict(self.drivers_of(self.account(cluster.region)))

    def drivers_of(self, account: A) -> Mapping[str, CloudDriver]:
        """Return the drivers of all kinds in an account's region."""
        return {kind: driver for part in self.parts for kind, driver in part.drivers(account).items()}

    def locations(self, cluster: ClusterSpec) -> Sequence[str]:
        """Tell the region, where the spec names one."""
        return (cluster.region,) if cluster.region else ()

    def search(self, cluster: str | None, *, locations: Sequence[str] = ()) -> Sequence[Observed]:
        """Let each kind's driver look in each region."""
        with self.told_plainly():
            accounts = [self.account(region) for region in locations or (None,)]
            looking = [driver for account in accounts for driver in self.drivers_of(account).values()]
            return search_all(looking, cluster)

    @contextmanager
    def told_plainly(self) -> Iterator[None]:
        """Say what the cloud's refusals mean."""
        try:
            yield
        except self.refusals as error:
            raise self.explain(error) from error
