"""What a cluster's resources are called on AWS, and in which zones they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.cloud.layout import CloudLayout, shortened
from cloudrec.providers.aws.prices import shipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.cloud.prices import Prices
    from cloudrec.providers.aws.offers import Hardware
    from cloudrec.providers.aws.settings import AwsSettings

TAG_REGION = "cloudrec-region"  # on what is global, so that each region's search finds its own
TAG_ZONES = "cloudrec-zones"  # on the VPC: the zones that it was laid out for
_LONGEST_ROLE, _LONGEST_BUCKET = 64, 63


@dataclass(frozen=True, kw_only=True)
class Layout(CloudLayout):
    """Everything that is decided before a resource is described; the same spec gives the same layout.

    Attributes:
        settings: the provider's own.
        region: where.
        account: whose, twelve digits.
        partition: what ARNs begin with after `arn:`.
        gpu_zones: zones to try for GPU nodes, the best first.
        zones: zones with subnets, sorted: those for GPU nodes, and a second one where EKS wants two.
        instance_types: kinds of GPU node to try, the best first.
        hardware: of each of them.
        offered: the zones that have each of them at all.
        prices: what things cost.
    """

    settings: AwsSettings
    region: str
    account: str
    partition: str = "aws"
    gpu_zones: tuple[str, ...] = field(default=())
    zones: tuple[str, ...] = field(default=())
    instance_types: tuple[str, ...] = field(default=())
    hardware: Mapping[str, Hardware] = field(default_factory=dict)
    offered: Mapping[str, Sequence[str]] = field(default_factory=dict)
    prices: Prices = field(default_factory=shipped)

    @property
    def bucket(self) -> str:
        """The bucket's name: unique in the world, recomputable by us."""
        return self.settings.bucket or shortened(f"{self.name}-{self.account}-{self.region}", _LONGEST_BUCKET)

    @property
    def storage(self) -> str:
        """URI of the cluster's data."""
        return "/".join(["s3:/", self.bucket, *([self.settings.prefix] if self.settings.prefix else [])])

    @property
    def repository(self) -> str:
        """The image repository's name."""
        return f"cloudrec/{self.title}"

    @property
    def log_group(self) -> str:
        """The log group's name."""
        return f"/cloudrec/{self.title}"

    @property
    def role_path(self) -> str:
        """The IAM path of the cluster's roles."""
        return f"/cloudrec/{self.title}/"

    @property
    def key_alias(self) -> str:
        """The alias of the key that we make."""
        return f"alias/{self.name}"

    def role(self, suffix: str) -> str:
        """Return a role's name; IAM knows no regions, so that it holds the region."""
        return shortened(f"{self.name}-{self.region}-{suffix}", _LONGEST_ROLE)
