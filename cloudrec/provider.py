"""What every provider offers: the Provider protocol and its capability types.

A provider is a folder under `cloudrec/providers`; shared code asks it what it can do through these
types and never by its name. Nothing here creates or deletes: a provider describes resources and gives
drivers, and the engine does the work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import SecretStr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Driver, Observed, Resource
    from cloudrec.spec.models import ClusterSpec


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One kind of node that can be had: its hardware and price.

    Attributes:
        instance_type: the cloud's name for it.
        location: region and zone, or where this machine is.
        capacity: "on-demand", "spot", or "owned".
        vcpus: virtual cores a node.
        memory_gib: memory a node.
        gpu: the GPU's model; empty when there is none.
        gpus: GPUs a node.
        hourly_usd: price of one node an hour; None when it must be asked for.
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
class Finding:
    """One preflight check: what was looked at, what was found, what is needed, and what to do about it."""

    check: str
    ok: bool
    found: str
    needed: str = ""
    remedy: str = ""
    blocks: bool = True  # False: a warning


@dataclass(frozen=True, kw_only=True)
class Access:
    """How a launcher reaches a ready cluster and what it finds there.

    Attributes:
        launchers: the ways of starting a run that work there, the usual one first.
        nodes: machines that train.
        gpus_per_node: GPUs on each; 0 trains on the CPU.
        cores_per_node: cores on each that the trainer may use.
        storage: URI of the cluster's storage for data and checkpoints.
        environment: transport settings that every process of a run needs there.
        details: what only the launchers of this kind of cluster read (a kubeconfig's path).
        is_adopted: others made the cluster, and it stays when what cloudrec put there goes.
    """

    launchers: tuple[str, ...]
    nodes: int
    gpus_per_node: int
    cores_per_node: int
    storage: str
    environment: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    is_adopted: bool = False


@dataclass(frozen=True, kw_only=True)
class Registry:
    """Where a cluster's images are kept, and how one logs in there for some hours.

    Attributes:
        address: the host to log in to.
        repository: what an image is called there, without a tag.
        username: who logs in; empty where the user's own login is to serve.
        password: good for some hours at most; empty likewise. It is for a client's standard input alone.
    """

    address: str
    repository: str
    username: str = ""
    password: SecretStr = field(default_factory=lambda: SecretStr(""))


@dataclass(frozen=True, kw_only=True)
class Halt:
    """What was done so that a cluster's GPU nodes cost nothing any more.

    Attributes:
        pools: what was asked to have no nodes, by identity.
        left: what still costs, and why it was left.
        is_final: whether what is left stays so, since it is not ours to scale.
    """

    pools: Sequence[str] = ()
    left: Sequence[str] = ()
    is_final: bool = False


@dataclass(frozen=True, kw_only=True)
class GuardAccess:
    """What the guard in a cluster is and needs, so that `Provider.halt` works there.

    Attributes:
        cluster: the spec as the provider is to be asked from inside.
        annotations: what makes the guard's service account an identity of the cloud.
        pod_labels: what makes its pods use it.
        environment: what its process must be told; nothing secret.
        cordons: whether it closes nodes by Kubernetes' own API, which then must be allowed.
    """

    cluster: ClusterSpec
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    cordons: bool = False


class Provider(Protocol):
    """One cloud, or this machine."""

    @property
    def name(self) -> str:
        """The name of its folder and on the command line."""
        ...

    @property
    def settle_s(self) -> float:
        """Seconds after which a listing by tag can be trusted to show a change."""
        ...

    def check(self, cluster: ClusterSpec) -> None:
        """Validate the settings that only this provider understands; SpecError with the remedy."""
        ...

    def offers(self, cluster: ClusterSpec) -> Sequence[Offer]:
        """Return the nodes that would serve, in order of preference."""
        ...

    def catalog(self, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
        """Return every kind of node that can be had where the spec says, with its price.

        Args:
            cluster: region, and further instance types to ask for.
            refresh: ask the cloud for its prices, and keep them for later plans.
        """
        ...

    def preflight(self, cluster: ClusterSpec) -> Sequence[Finding]:
        """Look at everything that must be there before `up`: credentials, quota, tools, leftovers."""
        ...

    def resources(self, cluster: ClusterSpec) -> Sequence[Resource]:
        """Describe what should exist. Pure: the same spec gives the same resources and names."""
        ...

    def drivers(self, cluster: ClusterSpec) -> Mapping[str, Driver]:
        """Return a driver for every kind that `resources` or `search` may name."""
        ...

    @property
    def control_plane(self) -> str:
        """The kind that stands for a whole cluster: while one exists, all else of its name is in use."""
        ...

    @property
    def kinds(self) -> Mapping[str, AbstractSet[str]]:
        """Every kind that `search` may show, with the kinds that one of it may need: the order of removal."""
        ...

    def locations(self, cluster: ClusterSpec) -> Sequence[str]:
        """Tell where the spec says that the cluster is, as `search` takes it; nowhere where it does not."""
        ...

    def search(self, cluster: str | None, *, locations: Sequence[str] = ()) -> Sequence[Observed]:
        """Find by tag, or by name, what exists of one cluster or of any, without a journal.

        Args:
            cluster: its name; None for all of ours.
            locations: the regions to look in; the spec's or the environment's own when empty.
        """
        ...

    def access(self, cluster: ClusterSpec) -> Access:
        """Tell how to reach the cluster; PreflightError when it is not there or is another of that name."""
        ...

    def registry(self, cluster: ClusterSpec) -> Registry:
        """Tell where the cluster's images go, and log in there; PreflightError where it has no registry."""
        ...

    def guard(self, cluster: ClusterSpec) -> GuardAccess:
        """Tell what the guard in the cluster is and needs; PreflightError where there can be none."""
        ...

    def halt(self, cluster: ClusterSpec) -> Halt:
        """Begin to scale what trains to no nodes; what is at none already is left as it is."""
        ...
