"""What a cluster's resources are called on Google Cloud, and in which zones they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.cloud.layout import CloudLayout, shortened
from cloudrec.providers.gcp.prices import shipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.cloud.prices import Prices
    from cloudrec.providers.gcp.offers import Hardware
    from cloudrec.providers.gcp.settings import GcpSettings

TAG_REGION = "cloudrec-region"  # so that each region's search finds its own of what is global
TAG_ZONES = "cloudrec-zones"  # on the network: the zones that the cluster was laid out for
_LONGEST, _LONGEST_CLUSTER, _LONGEST_ACCOUNT, _LONGEST_BUCKET = 63, 40, 30, 63


@dataclass(frozen=True, kw_only=True)
class Layout(CloudLayout):
    """Everything that is decided before a resource is described; the same spec gives the same layout.

    Attributes:
        settings: the provider's own.
        region: where.
        project: whose, its id.
        number: the project's number.
        home_zone: the zone of a zonal control plane.
        gpu_zones: zones to try for GPU nodes, the best first.
        instance_types: kinds of GPU node to try, the best first.
        hardware: of each of them.
        offered: the zones that have each of them at all.
        prices: what things cost.
    """

    settings: GcpSettings
    region: str
    project: str
    number: str
    home_zone: str = ""
    gpu_zones: tuple[str, ...] = field(default=())
    instance_types: tuple[str, ...] = field(default=())
    hardware: Mapping[str, Hardware] = field(default_factory=dict)
    offered: Mapping[str, Sequence[str]] = field(default_factory=dict)
    prices: Prices = field(default_factory=shipped)

    def tags(self, key: str, suffix: str = "") -> dict[str, str]:
        """Return what a resource of this key is born with; its region is among it."""
        return {**super().tags(key, suffix), TAG_REGION: self.region}

    @property
    def location(self) -> str:
        """Where GKE keeps the cluster: the region, or one zone."""
        return self.region if self.settings.regional else self.home_zone

    @property
    def cluster_path(self) -> str:
        """The cluster's path."""
        name = shortened(self.name, _LONGEST_CLUSTER)
        return f"projects/{self.project}/locations/{self.location}/clusters/{name}"

    @property
    def workload_pool(self) -> str:
        """The pool of identities that pods of all clusters of the project have."""
        return f"{self.project}.svc.id.goog"

    @property
    def pod_principal(self) -> str:
        """Who runs are to IAM."""
        return self.principal(self.settings.service_account)

    def principal(self, account: str) -> str:
        """Return who Kubernetes' account NAMESPACE/NAME is to IAM, with no Google account between."""
        namespace, _, name = account.partition("/")
        return (
            f"principal://iam.googleapis.com/projects/{self.number}/locations/global/workloadIdentityPools/"
            f"{self.workload_pool}/subject/ns/{namespace}/sa/{name}"
        )

    @property
    def gpu_networks(self) -> int:
        """How many networks the GPUs' own cards want, at most."""
        return max((self.hardware[name].gpu_nics for name in self.instance_types), default=0)

    @property
    def bucket(self) -> str:
        """The bucket's name: unique in the world, recomputable by us."""
        name = shortened(f"{self.name}-{self.number}-{self.region}", _LONGEST_BUCKET)
        return self.settings.bucket or name

    @property
    def storage(self) -> str:
        """URI of the cluster's data."""
        return "/".join(["gs:/", self.bucket, *([self.settings.prefix] if self.settings.prefix else [])])

    @property
    def repository_path(self) -> str:
        """The image repository's path."""
        return f"projects/{self.project}/locations/{self.region}/repositories/{self.regional('')}"

    def regional(self, suffix: str = "") -> str:
        """Return the name of what a region has."""
        return shortened(f"{self.name}-{suffix}" if suffix else self.name, _LONGEST)

    def everywhere(self, suffix: str = "") -> str:
        """Return the name of what all regions share, which holds the region."""
        return shared_name(self.title, self.region, suffix)

    def global_path(self, collection: str, suffix: str = "") -> str:
        """Return the path of what all regions share ("networks")."""
        return f"projects/{self.project}/global/{collection}/{self.everywhere(suffix)}"

    def regional_path(self, collection: str, suffix: str = "") -> str:
        """Return the path of what a region has ("subnetworks")."""
        return f"projects/{self.project}/regions/{self.region}/{collection}/{self.regional(suffix)}"

    def account(self, suffix: str) -> str:
        """Return the e-mail address of a service account."""
        name = account_id(self.title, self.region, suffix)
        return f"{name}@{self.project.replace(':', '.')}.iam.gserviceaccount.com"


def shared_name(cluster: str, region: str, suffix: str = "") -> str:
    """Return the name of what all regions share, which holds the region: two clusters may be namesakes."""
    return shortened("-".join(filter(None, (f"cloudrec-{cluster}", region, suffix))), _LONGEST)


def account_id(cluster: str, region: str, suffix: str) -> str:
    """Return what a service account's e-mail address begins with."""
    return shortened(f"cloudrec-{cluster}-{region}-{suffix}", _LONGEST_ACCOUNT)
