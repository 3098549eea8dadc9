"""The settings of this provider."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from cloudrec.spec.load import validated
from cloudrec.spec.models import Model, Names

if TYPE_CHECKING:
    from typing import Self

    from cloudrec.spec.models import ClusterSpec

_WIDEST, _NARROWEST = 16, 20  # prefix lengths of a VPC's block: EC2's limit, and room for all subnets
_LUSTRE_STEP_GIB, _LUSTRE_FIRST_GIB = 2400, 1200  # FSx's sizes: the first, then multiples of the step
# Services that nodes can use through the VPC. `s3` is a gateway endpoint: it is free, and the layers of ECR's
# images come from S3, so the NAT gateway carries little.
ENDPOINTS = ("s3", "ec2", "ecr-api", "ecr-dkr", "sts", "logs", "eks-auth", "eks")
FREE_ENDPOINTS = ("s3",)
LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")


def _vpc_block(value: str) -> str:
    block = ipaddress.IPv4Network(value)
    if not block.is_private:
        raise ValueError("is not a private block; choose one in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16")
    if not _WIDEST <= block.prefixlen <= _NARROWEST:
        raise ValueError(f"is a /{block.prefixlen}; use /{_WIDEST} to /{_NARROWEST}")
    return str(block)


def _capacity(value: int) -> int:
    if value not in {0, _LUSTRE_FIRST_GIB} and value % _LUSTRE_STEP_GIB:
        raise ValueError(
            f"is not a size of FSx; use 0 (none), {_LUSTRE_FIRST_GIB} or a multiple of {_LUSTRE_STEP_GIB}"
        )
    return value


def _known(allowed: tuple[str, ...]) -> AfterValidator:
    def check(values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            if value not in allowed:
                raise ValueError(f"has {value!r}; allowed are {', '.join(allowed)}")
        return values

    return AfterValidator(check)


class AwsSettings(Model):
    """`cluster.settings` of the provider aws."""

    vpc_cidr: Annotated[str, AfterValidator(_vpc_block)] = Field(
        "10.42.0.0/16",
        description="the VPC's addresses; must not overlap with those of networks that it is peered with",
    )
    nat: bool = Field(
        default=True,
        description="let nodes reach the internet through a NAT gateway; false is refused, since the GPU "
        "plug-in comes from nvcr.io",
    )
    endpoints: Annotated[Names, _known(ENDPOINTS)] = Field(
        FREE_ENDPOINTS,
        description="services that nodes reach without leaving the VPC: s3 for nothing, and ec2, ecr-api, "
        "ecr-dkr, sts, logs, eks-auth and eks at a price an hour and zone; others go through the NAT gateway",
    )
    log_types: Annotated[Names, _known(LOG_TYPES)] = Field(
        LOG_TYPES, description="logs of the control plane to keep"
    )
    log_days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 180, 365] = Field(30, description="days to keep logs")
    kms_key: str | None = Field(
        None, description="ARN or alias of a KMS key for secrets, data and logs; one is created when absent"
    )
    bucket: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
        description="the bucket's name; derived from cluster, account and region when absent",
    )
    prefix: str = Field(
        "",
        pattern=r"^([A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*)?$",
        description="the prefix of the bucket that runs may use; the whole bucket when empty",
    )
    lustre_gib: Annotated[int, Field(ge=0), AfterValidator(_capacity)] = Field(
        0, description="GiB of an FSx for Lustre file system that is linked to the bucket; none when 0"
    )
    lustre_throughput: Literal[125, 250, 500, 1000] = Field(
        250, description="MB/s of the Lustre file system for each TiB"
    )
    service_account: str = Field(
        "cloudrec/cloudrec",
        pattern=r"^[a-z0-9-]+/[a-z0-9-]+$",
        description="service account of runs, as namespace/name",
    )
    permissions_boundary: str | None = Field(
        None,
        pattern=r"^arn:aws[a-z-]*:iam::(\d{12}|aws):policy/.+$",
        description="ARN of the permissions boundary of all roles; the account's `cloudrec-boundary`, if it "
        "has one, when absent",
    )
    cpu_instance_types: Names = Field(
        ("m6i.large", "m5.large", "m6a.large"), description="instance types of the CPU nodes"
    )
    cpu_nodes: PositiveInt = Field(2, description="number of CPU nodes, which run everything but training")
    gpu_root_gib: Annotated[int, Field(ge=50, le=16384)] = Field(
        200, description="GiB of a GPU node's root disk; nodes with local disks keep images and files there"
    )
    image_pull: Literal["parallel", "sequential"] = Field(
        "parallel",
        description="how new GPU nodes with local disks pull images: parallel downloads and unpacks the "
        "layers at once, by the SOCI snapshotter (EKS's FastImagePull); sequential is containerd's own way",
    )
    admins: Names = Field((), description="ARNs of more roles and users that administer the cluster")
    capacity_reservation_id: str | None = Field(
        None, description="ID of your capacity reservation for the GPU nodes"
    )
    capacity_block_id: str | None = Field(None, description="ID of your Capacity Block for ML")
    max_price: Annotated[float, Field(gt=0)] | None = Field(
        None, description="most USD/h for one spot node; the on-demand price when absent"
    )
    labels: dict[str, str] = Field(default_factory=dict, description="labels of every node")

    @model_validator(mode="after")
    def _one_kind_of_reservation(self) -> Self:
        if self.capacity_reservation_id and self.capacity_block_id:
            raise ValueError("capacity_reservation_id and capacity_block_id exclude each other")
        return self


def settings_of(cluster: ClusterSpec) -> AwsSettings:
    """Validate and return the cluster's settings; SpecError if one is invalid."""
    return validated(AwsSettings, cluster.settings, {})
