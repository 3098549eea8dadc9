"""The names, paths and zones of a cluster's resources on Google Cloud."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.providers.base.layout import CloudLayout, shortened
from cloudrec.providers.base.offers import CAPACITY_TYPES, all_ways
from cloudrec.providers.gcp.offers import FLEX, RESERVED
from cloudrec.providers.gcp.prices import shipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.base.offers import Placement
    from cloudrec.providers.base.prices import Prices
    from cloudrec.providers.gcp.offers import GcpMachineType
    from cloudrec.providers.gcp.settings import GcpSettings

TAG_REGION = "cloudrec-region"  # on every resource: a search in a region skips global ones of other regions
TAG_ZONES = "cloudrec-zones"  # on the network: the zones that the cluster was created for
# Google's limits on names, in characters.
_LONGEST, _LONGEST_CLUSTER, _LONGEST_ACCOUNT, _LONGEST_BUCKET = 63, 40, 30, 63


@dataclass(frozen=True, kw_only=True)
class GcpLayout(CloudLayout):
    """The decisions that all resources of a cluster share; the same spec gives the same layout.

    Attributes:
        settings: `cluster.settings` of this provider.
        region: of the cluster.
        project: the id of the project.
        number: the number of the project.
        home_zone: the zone of a zonal control plane.
        gpu_zones: the zones to try for GPU nodes, the best first.
        instance_types: the machine types to try for GPU nodes, the best first.
        hardware: machine type -> its hardware.
        offered: machine type -> the zones that offer it.
        prices: the price table.
        shared_account: the e-mail address of the service account that an administrator made for the nodes of
            all clusters; empty if the cluster has its own.
        guard_role: the role that the guard gets for its cluster.
        shared_end: the e-mail address of the service account that an administrator made to end clusters;
            empty if the cluster has its own.
        starter_role: the role with which a cluster's own account starts the workflow that ends it.
    """

    settings: GcpSettings
    region: str
    project: str
    number: str
    home_zone: str = ""
    gpu_zones: tuple[str, ...] = field(default=())
    instance_types: tuple[str, ...] = field(default=())
    hardware: Mapping[str, GcpMachineType] = field(default_factory=dict)
    offered: Mapping[str, Sequence[str]] = field(default_factory=dict)
    prices: Prices = field(default_factory=shipped)
    shared_account: str = ""
    guard_role: str = ""
    shared_end: str = ""
    starter_role: str = ""

    def __post_init__(self) -> None:
        # Prices of another region are never used.
        object.__setattr__(self, "prices", self.prices.within(self.region))

    def places(self) -> list[Placement]:
        """Return the candidates for the GPU nodes, the best first.

        With a reservation, which is paid for already, there are no others. Flex-start comes last: it never
        fails, but waits for capacity.
        """
        capacity_types = CAPACITY_TYPES[self.cluster.capacity]
        if self.settings.flex_start and FLEX not in capacity_types:
            capacity_types = (*capacity_types, FLEX)
        if self.reservation or self.cluster.block is not None:
            capacity_types = (RESERVED,)
        return [
            way
            for way in all_ways(self.instance_types, self.gpu_zones, capacity_types, self.offered)
            if not (only := self.hardware[way.instance_type].only) or way.capacity in only
        ]

    @property
    def reservation(self) -> str:
        """The reservation that the GPU nodes use, of the settings or of the block; empty for none."""
        block = self.cluster.block
        return block.id if block is not None else self.settings.reservation or ""

    def tags(self, key: str, suffix: str = "") -> dict[str, str]:
        """Return the tags of a resource, with its region."""
        return {**super().tags(key, suffix), TAG_REGION: self.region}

    @property
    def location(self) -> str:
        """The location of the cluster in GKE: the region, or the home zone."""
        return self.region if self.settings.regional else self.home_zone

    @property
    def cluster_path(self) -> str:
        """The path of the GKE cluster."""
        name = shortened(self.name, _LONGEST_CLUSTER)
        return f"projects/{self.project}/locations/{self.location}/clusters/{name}"

    @property
    def workload_pool(self) -> str:
        """The workload identity pool, which all clusters of the project share."""
        return f"{self.project}.svc.id.goog"

    @property
    def pod_principal(self) -> str:
        """The IAM principal of runs."""
        return self.principal(self.settings.service_account)

    def principal(self, account: str) -> str:
        """Return the IAM principal of the Kubernetes service account NAMESPACE/NAME."""
        namespace, _, name = account.partition("/")
        return (
            f"principal://iam.googleapis.com/projects/{self.number}/locations/global/workloadIdentityPools/"
            f"{self.workload_pool}/subject/ns/{namespace}/sa/{name}"
        )

    @property
    def gpu_networks(self) -> int:
        """The number of networks of further gVNIC cards: the most that one of the instance types needs."""
        return max((self.hardware[name].gpu_nics for name in self.instance_types), default=0)

    @property
    def rdma_nics(self) -> int:
        """The number of RDMA cards: the most that one of the instance types has."""
        return max((self.hardware[name].rdma_nics for name in self.instance_types), default=0)

    @property
    def rdma_zones(self) -> tuple[str, ...]:
        """The zones of the candidates with RDMA cards, each of which needs a separate network."""
        found = (way.zone for way in self.places() if self.hardware[way.instance_type].rdma_nics)
        return tuple(dict.fromkeys(found))

    @property
    def bucket(self) -> str:
        """The bucket's name, unique in the world: another cluster's, that of the settings, or computed."""
        if (shared := self.cluster.storage) is not None:
            return shared.bucket
        name = shortened(f"{self.name}-{self.number}-{self.region}", _LONGEST_BUCKET)
        return self.settings.bucket or name

    @property
    def prefix(self) -> str:
        """The prefix of the bucket that runs may use; empty for the whole bucket."""
        shared = self.cluster.storage
        return shared.prefix if shared is not None else self.settings.prefix

    @property
    def storage(self) -> str:
        """The URI of the cluster's data: gs://BUCKET or gs://BUCKET/PREFIX."""
        return "/".join(["gs:/", self.bucket, *([self.prefix] if self.prefix else [])])

    @property
    def repository_path(self) -> str:
        """The path of the image repository."""
        return f"projects/{self.project}/locations/{self.region}/repositories/{self.regional('')}"

    def regional(self, suffix: str = "") -> str:
        """Return the name of a regional resource."""
        return shortened(f"{self.name}-{suffix}" if suffix else self.name, _LONGEST)

    def everywhere(self, suffix: str = "") -> str:
        """Return the name of a global resource; it contains the region."""
        return shared_name(self.title, self.region, suffix)

    def global_path(self, collection: str, suffix: str = "") -> str:
        """Return the path of a global resource of a collection, such as "networks"."""
        return f"projects/{self.project}/global/{collection}/{self.everywhere(suffix)}"

    def regional_path(self, collection: str, suffix: str = "") -> str:
        """Return the path of a regional resource of a collection, such as "subnetworks"."""
        return f"projects/{self.project}/regions/{self.region}/{collection}/{self.regional(suffix)}"

    def account(self, suffix: str) -> str:
        """Return the e-mail address of a service account."""
        return account_address(account_id(self.title, self.region, suffix), self.project)

    @property
    def node_account(self) -> str:
        """The e-mail address of the nodes' service account: that of the project, or the cluster's own."""
        return self.shared_account or self.account("nodes")

    @property
    def is_end_movable(self) -> bool:
        """Whether the cluster has an end that the guard moves."""
        return bool(self.cluster.expires) and self.cluster.has_movable_end

    @property
    def end_account(self) -> str:
        """The e-mail address of the service account that ends the cluster: the project's, or its own."""
        return self.shared_end or self.account("end")


def shared_name(cluster: str, region: str, suffix: str = "") -> str:
    """Return the name of a global resource. It contains the region: each may have a cluster of this name."""
    return shortened("-".join(filter(None, (f"cloudrec-{cluster}", region, suffix))), _LONGEST)


def account_address(name: str, project: str) -> str:
    """Return the e-mail address of a service account.

    The project example.com:trainers, which a domain has, gives NAME@trainers.example.com.iam....
    """
    domain, _, rest = project.rpartition(":")
    host = f"{rest}.{domain}" if domain else rest
    return f"{name}@{host}.iam.gserviceaccount.com"


def account_id(cluster: str, region: str, suffix: str) -> str:
    """Return the id of a service account: its e-mail address up to the @."""
    return shortened(f"cloudrec-{cluster}-{region}-{suffix}", _LONGEST_ACCOUNT)
