"""The settings that only this provider understands; the defaults are private and encrypted."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from cloudrec.spec.load import validated
from cloudrec.spec.models import Model, Names

if TYPE_CHECKING:
    from typing import Self

    from cloudrec.spec.models import ClusterSpec

_WIDEST, _NARROWEST = 16, 20  # of a VPC's block: EC2's own limit, and what our subnets leave room for
_LUSTRE_STEP_GIB, _LUSTRE_FIRST_GIB = 2400, 1200
# What nodes talk to without leaving the VPC; `s3` is a gateway and costs nothing.
ENDPOINTS = ("s3", "ec2", "ecr-api", "ecr-dkr", "sts", "logs", "eks-auth", "eks")
LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")


def _vpc_block(value: str) -> str:
    block = ipaddress.IPv4Network(value)
    if not block.is_private:
        raise ValueError("is no private block; take one of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16")
    if not _WIDEST <= block.prefixlen <= _NARROWEST:
        raise ValueError(f"is a /{block.prefixlen}; /{_WIDEST} to /{_NARROWEST} can be used")
    return str(block)


def _blocks(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(ipaddress.IPv4Network(value)) for value in values)


def _capacity(value: int) -> int:
    if value not in {0, _LUSTRE_FIRST_GIB} and value % _LUSTRE_STEP_GIB:
        raise ValueError(
            f"is no size of a file system: 0 (none), {_LUSTRE_FIRST_GIB} or a multiple of {_LUSTRE_STEP_GIB}"
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
    """`cluster.settings` for AWS."""

    vpc_cidr: Annotated[str, AfterValidator(_vpc_block)] = Field(
        "10.42.0.0/16",
        description="the VPC's addresses; must not overlap with networks it is to be joined to",
    )
    nat: bool = Field(default=True, description="let nodes reach the internet through a NAT gateway")
    endpoints: Annotated[Names, _known(ENDPOINTS)] = Field(
        ENDPOINTS, description="services that nodes reach without leaving the VPC; all but s3 cost $/h"
    )
    public_access_cidrs: Annotated[Names, AfterValidator(_blocks)] = Field(
        (), description="who reaches the Kubernetes API from the internet; nobody when empty"
    )
    log_types: Annotated[Names, _known(LOG_TYPES)] = Field(
        LOG_TYPES, description="logs of the control plane that are kept"
    )
    log_days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 180, 365] = Field(30, description="days that logs are kept")
    kms_key: str | None = Field(
        None, description="ARN of a key of your own for secrets, data and logs; one is made when absent"
    )
    bucket: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
        description="the bucket's name; made from cluster, account and region when absent",
    )
    prefix: str = Field(
        "",
        pattern=r"^([A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*)?$",
        description="the part of the bucket that runs may use; all of it when empty",
    )
    lustre_gib: Annotated[int, Field(ge=0), AfterValidator(_capacity)] = Field(
        0, description="size of an FSx for Lustre file system in front of the bucket; none when 0"
    )
    lustre_throughput: Literal[125, 250, 500, 1000] = Field(250, description="its MB/s for each TiB")
    service_account: str = Field(
        "cloudrec/cloudrec", pattern=r"^[a-z0-9-]+/[a-z0-9-]+$", description="namespace/name that runs have"
    )
    cpu_instance_types: Names = Field(
        ("m6i.large", "m5.large", "m6a.large"), description="kinds of node for what is no training"
    )
    cpu_nodes: PositiveInt = Field(2, description="nodes for what is no training")
    gpu_root_gib: Annotated[int, Field(ge=50, le=16384)] = Field(
        200, description="root disk of a GPU node, which holds images; scratch files go to its local disks"
    )
    admins: Names = Field((), description="ARNs of roles and users that administer the cluster beside you")
    capacity_reservation_id: str | None = Field(None, description="a reservation of GPU nodes that is yours")
    capacity_block_id: str | None = Field(None, description="a Capacity Block for ML that is yours")
    max_price: Annotated[float, Field(gt=0)] | None = Field(
        None, description="most USD/h for one spot node; the on-demand price when absent"
    )
    labels: dict[str, str] = Field(default_factory=dict, description="labels on every node")

    @model_validator(mode="after")
    def _one_kind_of_reservation(self) -> Self:
        if self.capacity_reservation_id and self.capacity_block_id:
            raise ValueError("capacity_reservation_id and capacity_block_id exclude each other")
        return self

    @model_validator(mode="after")
    def _a_way_out(self) -> Self:
        missing = [name for name in ENDPOINTS if name not in self.endpoints]
        if not self.nat and missing:
            raise ValueError(f"without nat, nodes need every endpoint; missing: {', '.join(missing)}")
        return self


def settings_of(cluster: ClusterSpec) -> AwsSettings:
    """Validate and return the cluster's settings; SpecError when they do not fit."""
    return validated(AwsSettings, cluster.settings, {})
