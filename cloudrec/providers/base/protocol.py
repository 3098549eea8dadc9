"""The Provider protocol and its capability types.

A provider is a folder under `cloudrec/providers` with a class that implements `Provider`. A capability that
only some providers have is a separate protocol (`HasRegistry`, `CanScaleToZero`). Shared code checks for it
with `isinstance`, never by the provider's name. A provider creates and deletes nothing: it describes
resources and returns drivers, and the engine calls them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pydantic import SecretStr

from cloudrec.providers.base.audit import Audit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Driver, Observed, Resource
    from cloudrec.findings import Finding
    from cloudrec.providers.base.access import Access
    from cloudrec.providers.base.storage.tiers import Tier
    from cloudrec.spec.models import ClusterSpec, SharedStorageSpec


ON_DEMAND, SPOT = "on-demand", "spot"  # capacity types
BLOCK, FLEX = "capacity-block", "flex-start"  # capacity types that only some clouds have
OWNED = "owned"  # the capacity type of nodes that cloudrec did not create


@dataclass(frozen=True, kw_only=True)
class Offer:
    """An available kind of node: its hardware and price.

    Attributes:
        instance_type: the cloud's name for it.
        location: region and zone, or the name of this machine.
        capacity: "on-demand", "spot", "capacity-block", "flex-start" or "owned".
        vcpus: virtual cores of a node.
        memory_gib: memory of a node, in GiB.
        gpu: the GPU's model; empty if it has none.
        gpus: GPUs of a node.
        hourly_usd: price of one node in USD an hour; None if unknown.
        priced: the price's date and source.
    """

    instance_type: str
    location: str
    capacity: str
    vcpus: int
    memory_gib: float
    gpu: str
    gpus: int
    hourly_usd: float | None
    priced: str


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The optional packages that a provider needs.

    Attributes:
        extra: the extra of cloudrec that installs them.
        modules: the modules that its commands import: SDKs, the Kubernetes client, its object store's client.
    """

    extra: str
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Registry:
    """The registry of a cluster's images, with a short-lived login.

    Attributes:
        address: the registry's host.
        repository: an image's name there, without a tag.
        username: the name for `docker login`; empty if the user's existing login is used.
        password: valid for some hours at most; empty likewise. Pass it on a client's standard input only,
            since other users of the machine can read a command's arguments.
    """

    address: str
    repository: str
    username: str = ""
    password: SecretStr = field(default_factory=lambda: SecretStr(""))


@dataclass(frozen=True, kw_only=True)
class DataPlaces:
    """From where the nodes of a cluster can read a dataset.

    Attributes:
        tiers: the places, the first one preferred.
        storage: URI of the cluster's storage, which all of them but the node's own disks show.
    """

    tiers: Sequence[Tier]
    storage: str


@dataclass(frozen=True, kw_only=True)
class Halt:
    """The result of scaling a cluster's GPU nodes to zero.

    Attributes:
        pools: identities of the pools that now scale to zero.
        left: the pools that still cost money, each with the reason.
        is_final: whether `left` stays so, because cloudrec may not scale those pools.
    """

    pools: Sequence[str] = ()
    left: Sequence[str] = ()
    is_final: bool = False


@dataclass(frozen=True, kw_only=True)
class GuardAccess:
    """The identity and settings with which the guard in a cluster can call `CanScaleToZero.halt`.

    Attributes:
        cluster: the spec for a provider that runs in the cluster.
        annotations: of the guard's service account; they bind it to an identity of the cloud.
        pod_labels: of its pods; they make the pods use that identity.
        environment: variables of its process; no secrets.
    """

    cluster: ClusterSpec
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ClosedApi:
    """A private Kubernetes API: only the cluster's network can reach it.

    Attributes:
        cluster: the cluster's name.
        can_change: whether the cloud can make the API of an existing cluster public.
    """

    cluster: str
    can_change: bool


class Provider(Protocol):
    """One cloud, or this machine."""

    @property
    def name(self) -> str:
        """Its name: that of its folder, and its name on the command line."""
        ...

    @property
    def settle_s(self) -> float:
        """Seconds after a change until a listing by tag shows it."""
        ...

    def check(self, cluster: ClusterSpec) -> None:
        """Validate the settings of this provider; SpecError if they are invalid."""
        ...

    def offers(self, cluster: ClusterSpec) -> Sequence[Offer]:
        """Return the nodes that satisfy the spec, in order of preference."""
        ...

    def catalog(self, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
        """Return every kind of node that the spec's region offers, with its price.

        Args:
            cluster: the spec: its region, and further instance types.
            refresh: get current prices from the cloud, and save them for later plans.
        """
        ...

    def preflight(self, cluster: ClusterSpec) -> Sequence[Finding]:
        """Check what `up` needs: credentials, quota, tools, no orphaned resources of an earlier cluster."""
        ...

    def resources(self, cluster: ClusterSpec) -> Sequence[Resource]:
        """Return the resources of a cluster. The same spec gives the same resources and names."""
        ...

    def drivers(self, cluster: ClusterSpec) -> Mapping[str, Driver]:
        """Return kind -> driver, for every kind that `resources` or `search` can return."""
        ...

    @property
    def control_plane(self) -> str:
        """The kind that represents a cluster: while one exists, the cluster's other resources are in use."""
        ...

    @property
    def kinds(self) -> Mapping[str, AbstractSet[str]]:
        """Kind -> kinds that it may need, for every kind that `search` can return: the order of removal."""
        ...

    def locations(self, cluster: ClusterSpec) -> Sequence[str]:
        """Return the locations that the spec names, as `search` takes them; empty if it names none."""
        ...

    def search(self, cluster: str | None, *, locations: Sequence[str] = ()) -> Sequence[Observed]:
        """Find a cluster's existing resources by tag or name, without the journal.

        Args:
            cluster: its name; None for all of cloudrec's clusters.
            locations: the regions to search; the environment's region if empty.
        """
        ...

    def access(self, cluster: ClusterSpec) -> Access:
        """Return how to reach the cluster.

        Raises:
            PreflightError: it does not exist, or is not the cluster that cloudrec made under this name.
        """
        ...


@runtime_checkable
class CreatesClusters(Protocol):
    """A provider that creates clusters in an account, rather than using existing ones."""

    def account_of(self, cluster: ClusterSpec) -> str:
        """Return the account (subscription, project) of the credentials, with the endpoint if one is set.

        Clusters with equal values are in the same account. PreflightError if there are no credentials.
        """
        ...

    def closed_api(self, cluster: ClusterSpec) -> ClosedApi | None:
        """Return the Kubernetes API if the spec makes it private; None if it is public."""
        ...

    @property
    def admits_by_address(self) -> bool:
        """Whether a public API admits callers by address; if not, by identity alone, from any address."""
        ...


@runtime_checkable
class AuditsAccount(Protocol):
    """A provider that can list resources that none of its drivers manages."""

    def audit(
        self, cluster: str | None, managed: Sequence[Observed], *, locations: Sequence[str] = ()
    ) -> Audit:
        """Find resources with cloudrec's tags or names, or in its networks, without a filter of types.

        Args:
            cluster: its name; None for all of cloudrec's clusters.
            managed: the result of `search`; these resources are left out.
            locations: the regions to search; the environment's region if empty.
        """
        ...

    def regions(self) -> Sequence[str]:
        """Return the regions that are enabled for the account."""
        ...


@runtime_checkable
class HasRegistry(Protocol):
    """A provider whose clusters run images from a registry."""

    def registry(self, cluster: ClusterSpec) -> Registry:
        """Return the cluster's registry with a login; PreflightError if it has none."""
        ...


@runtime_checkable
class ProbesStorage(Protocol):
    """A provider whose clusters use storage that cloudrec did not create."""

    def probe_storage(self, cluster: ClusterSpec) -> Finding | None:
        """Write an object and remove it; None if the storage must not be checked from this machine."""
        ...


@dataclass(frozen=True, kw_only=True)
class StorageTraffic:
    """The price of the traffic from a storage to the cluster of another region that uses it.

    Attributes:
        usd_per_gb: US dollars for a GB; None if unknown.
        label: date, place and source of the price; empty if it is unknown.
    """

    usd_per_gb: float | None
    label: str = ""


@runtime_checkable
class SharesStorage(Protocol):
    """A provider whose clusters can use the storage of another cluster of the account, from any region."""

    @property
    def storage_kind(self) -> str:
        """The kind of resource that is the storage."""
        ...

    @property
    def is_kept_storage_usable(self) -> bool:
        """Whether other clusters can still use the storage of one that `down --keep-data` has removed."""
        ...

    def check_sharing(self, cluster: ClusterSpec, first: ClusterSpec) -> None:
        """Raise SpecError if the runs of a cluster could not use the storage of `first`."""
        ...

    def shared_storage(self, cluster: ClusterSpec) -> SharedStorageSpec:
        """Return the storage of a cluster, for another one that is to use it."""
        ...

    def storage_traffic(self, cluster: ClusterSpec) -> StorageTraffic | None:
        """Return what a cluster's reads of another cluster's storage cost; None in one region."""
        ...

    def note_user(self, cluster: ClusterSpec, *, is_user: bool) -> None:
        """Write into the storage of another cluster whether a cluster uses it, or uses it no more.

        It is no error if that storage does not exist any more.
        """
        ...


@runtime_checkable
class HoldsData(Protocol):
    """A provider that knows from where the nodes of its clusters can read a dataset."""

    def data_places(self, cluster: ClusterSpec) -> DataPlaces:
        """Return the tiers local, lustre and bucket, as they are on each node.

        Of several instance types that may be taken, the one with the least room and rate counts.
        """
        ...


@runtime_checkable
class FillsLustre(Protocol):
    """A provider whose Lustre file systems are filled by an import, rather than by a link to the bucket."""

    def path_in_lustre(self, cluster: ClusterSpec, below: str) -> str:
        """Return the path of a dataset in the file system.

        Args:
            cluster: the cluster.
            below: its path below the cluster's storage.
        """
        ...

    def fill_lustre(self, cluster: ClusterSpec, below: str) -> None:
        """Import a dataset from the cluster's storage, and wait for it; CloudrecError if that fails."""
        ...


@runtime_checkable
class AsksPrices(Protocol):
    """A provider whose cloud has a price list."""

    def renew_prices(self, cluster: ClusterSpec) -> str:
        """Ask the cloud for the prices of a cluster's nodes in its region, and keep them for later commands.

        Returns:
            Why the cloud gave none, in which case the known prices stay; empty if it gave them.
        """
        ...

    def price_region(self, cluster: ClusterSpec) -> str:
        """Return the region whose prices a cluster has."""
        ...

    @property
    def usual_minutes(self) -> Mapping[str, tuple[int, int]]:
        """Kind -> the minutes that one takes to create, of the kinds that take longest."""
        ...


@runtime_checkable
class CanScaleToZero(Protocol):
    """A provider whose clusters can scale their GPU nodes to zero from inside, without another machine."""

    def guard(self, cluster: ClusterSpec) -> GuardAccess:
        """Return the identity and settings of the guard, with which it can call `halt`."""
        ...

    def halt(self, cluster: ClusterSpec) -> Halt:
        """Begin to scale the GPU nodes to zero; pools without nodes stay unchanged.

        The guard calls it again in later rounds. If a pool fails, it is listed in `left`, and the others are
        still scaled.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class PoolSize:
    """The size of a pool of GPU nodes, as the cloud has it.

    Attributes:
        name: the pool's name, as the nodes' label has it.
        nodes: the number of nodes that the cloud is to run; it may run fewer. None if it does not report it.
        problem: why the cloud runs fewer, in its words; empty if it gives no reason.
        is_retried: whether the cloud itself tries again to run the others.
        is_changing: whether the cloud is still at work on the last change, and may yet find no capacity.
    """

    name: str
    nodes: int | None
    problem: str = ""
    is_retried: bool = True
    is_changing: bool = False


@runtime_checkable
class SizesPools(Protocol):
    """A provider whose pools of GPU nodes can be sized from inside the cluster, with the guard's identity."""

    def pools(self, cluster: ClusterSpec) -> Sequence[PoolSize]:
        """Return the pools of GPU nodes of a cluster."""
        ...

    def resize(self, cluster: ClusterSpec, pool: str, nodes: int) -> str:
        """Begin to give a pool this number of nodes.

        Returns:
            Why the cloud does not do so now, in one line; empty if it does.
        """
        ...


END_SCHEDULE = "end-schedule"  # the kind of what keeps the end of a cluster in its cloud


@runtime_checkable
class MovesEnd(Protocol):
    """A provider whose cloud keeps the end of a cluster, and lets the guard move it.

    The end of a budget depends on what the nodes cost until then, which nothing knows in advance.
    """

    def move_end(self, cluster: ClusterSpec, pools: Sequence[str]) -> None:
        """Move the end that the cloud keeps to the cluster's expiry, also in the tags of that resource.

        Args:
            cluster: the cluster, with the new expiry.
            pools: the names of all pools of GPU nodes that `up` may create.

        Raises:
            CloudrecError: the cloud refuses, or keeps no end of this cluster; the end is as it was before.
        """
        ...


def account_of(provider: Provider, cluster: ClusterSpec) -> str:
    """Return the account that a provider's clusters are in; empty for a provider without accounts."""
    return provider.account_of(cluster) if isinstance(provider, CreatesClusters) else ""


def closed_api(provider: Provider, cluster: ClusterSpec) -> ClosedApi | None:
    """Return a cluster's private Kubernetes API; None if it is public, or the provider creates none."""
    return provider.closed_api(cluster) if isinstance(provider, CreatesClusters) else None


def audited(
    provider: Provider, cluster: str | None, managed: Sequence[Observed], *, locations: Sequence[str] = ()
) -> Audit:
    """Return a provider's audit; an empty one for a provider without accounts. See `AuditsAccount.audit`."""
    if not isinstance(provider, AuditsAccount):
        return Audit()
    return provider.audit(cluster, managed, locations=locations)
