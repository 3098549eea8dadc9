"""Names and zones of a cluster's resources on AWS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.providers.aws.prices import shipped
from cloudrec.providers.base.layout import CloudLayout, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.aws.offers import AwsInstanceType
    from cloudrec.providers.aws.settings import AwsSettings
    from cloudrec.providers.base.prices import Prices

TAG_REGION = "cloudrec-region"  # on IAM roles, which are global: a search skips those of other regions
TAG_ZONES = "cloudrec-zones"  # on the VPC: the zones that have subnets
_LONGEST_ROLE, _LONGEST_BUCKET = 64, 63  # characters: the limits of IAM and of S3


@dataclass(frozen=True, kw_only=True)
class AwsLayout(CloudLayout):
    """What the resources of a cluster are described from: names, zones, hardware and prices.

    Attributes:
        settings: the provider's settings.
        region: the AWS region.
        account: the AWS account's twelve digits.
        partition: the second field of an ARN: aws, aws-cn or aws-us-gov.
        gpu_zones: zones to try for GPU nodes, the best first.
        zones: zones with subnets, sorted: those for GPU nodes, and another one if they are fewer than two,
            EKS's minimum.
        instance_types: types of GPU node to try, the best first.
        hardware: the hardware of each instance type.
        offered: the zones that offer each instance type.
        endpoint_zones: the zones in which each service has interface endpoints; every zone for one without
            an entry.
        prices: the price table, in USD an hour.
    """

    settings: AwsSettings
    region: str
    account: str
    partition: str = "aws"
    gpu_zones: tuple[str, ...] = field(default=())
    zones: tuple[str, ...] = field(default=())
    instance_types: tuple[str, ...] = field(default=())
    hardware: Mapping[str, AwsInstanceType] = field(default_factory=dict)
    offered: Mapping[str, Sequence[str]] = field(default_factory=dict)
    endpoint_zones: Mapping[str, Sequence[str]] = field(default_factory=dict)
    prices: Prices = field(default_factory=shipped)

    def __post_init__(self) -> None:
        # Prices of another region are never used.
        object.__setattr__(self, "prices", self.prices.within(self.region))

    @property
    def dns_suffix(self) -> str:
        """The end of the names of regional services: in China it is another one."""
        return "amazonaws.com.cn" if self.partition == "aws-cn" else "amazonaws.com"

    @property
    def bucket(self) -> str:
        """The bucket's name: that of another cluster, the setting, or one from cluster, account and region.

        Bucket names are unique among all AWS accounts, so the account's number is part of it.
        """
        if (shared := self.cluster.storage) is not None:
            return shared.bucket
        return self.settings.bucket or shortened(f"{self.name}-{self.account}-{self.region}", _LONGEST_BUCKET)

    @property
    def prefix(self) -> str:
        """The prefix of the bucket that runs may use; empty for the whole bucket."""
        shared = self.cluster.storage
        return shared.prefix if shared is not None else self.settings.prefix

    @property
    def storage_region(self) -> str:
        """The region of the bucket."""
        shared = self.cluster.storage
        return shared.region if shared is not None else self.region

    @property
    def storage_key(self) -> str:
        """The ARN of the key that encrypts the bucket, or the alias of a key that cloudrec creates."""
        shared = self.cluster.storage
        return shared.key if shared is not None else self.settings.kms_key or self.key_alias

    @property
    def storage(self) -> str:
        """The URI of the cluster's data, s3://BUCKET or s3://BUCKET/PREFIX."""
        return "/".join(["s3:/", self.bucket, *([self.prefix] if self.prefix else [])])

    @property
    def repository(self) -> str:
        """The image repository's name."""
        return f"cloudrec/{self.title}"

    @property
    def has_managed_metrics(self) -> bool:
        """Whether CloudWatch's agent collects the metrics of nodes and GPUs."""
        return self.cluster.metrics == "managed"

    @property
    def metrics_group(self) -> str:
        """The name of the log group of Container Insights, which its agent prescribes."""
        return f"/aws/containerinsights/{self.name}/performance"

    @property
    def log_group(self) -> str:
        """The name of the control plane's log group, which EKS prescribes."""
        return f"/aws/eks/{self.name}/cluster"

    @property
    def role_path(self) -> str:
        """The IAM path of the cluster's roles."""
        return f"/cloudrec/{self.title}/"

    @property
    def key_alias(self) -> str:
        """The alias of the KMS key that cloudrec creates."""
        return f"alias/{self.name}"

    def role(self, suffix: str) -> str:
        """Return a role's name.

        It contains the region: roles of all regions share one namespace in IAM. It ends in the suffix,
        however long the cluster's name: the policies of infra/aws allow to pass roles by it.
        """
        beginning = shortened(f"{self.name}-{self.region}", _LONGEST_ROLE - len(suffix) - 1)
        return f"{beginning}-{suffix}"
