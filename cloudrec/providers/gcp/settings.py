"""The settings of this provider; with the defaults, the cluster is private and its data encrypted."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from cloudrec.spec.durations import seconds_of
from cloudrec.spec.load import validated
from cloudrec.spec.models import Model

if TYPE_CHECKING:
    from typing import Self

    from cloudrec.spec.models import ClusterSpec

# The shortest and the longest prefix of each block. GKE gives each node a /24 of the pods' block; the GPUs'
# block is divided among eight networks.
_NODES, _PODS, _SERVICES, _GPUS = (9, 24), (9, 21), (16, 27), (9, 19)
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_LABEL_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LONGEST_RUN_S = 7 * 86400.0  # Google's limit for flex-start nodes
# Throughput of a file system in MB/s per TiB -> its smallest size, and its step, in GiB.
LUSTRE_STEPS = {125: 72000, 250: 36000, 500: 18000, 1000: 9000}


def _block(limits: tuple[int, int]) -> AfterValidator:
    widest, narrowest = limits

    def check(value: str) -> str:
        block = ipaddress.IPv4Network(value)
        if not block.is_private and not block.subnet_of(ipaddress.IPv4Network("100.64.0.0/10")):
            raise ValueError("is no private block; choose one in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16")
        if not widest <= block.prefixlen <= narrowest:
            raise ValueError(f"is a /{block.prefixlen}; /{widest} to /{narrowest} are allowed")
        return str(block)

    return AfterValidator(check)


def _labels(values: dict[str, str]) -> dict[str, str]:
    for name, value in values.items():
        if not _LABEL_NAME.fullmatch(name) or not _LABEL.fullmatch(value):
            raise ValueError(f"has {name}={value}; Google allows up to 63 of a-z, 0-9, - and _")
    return values


def _run(value: str) -> str:
    if seconds_of(value) > _LONGEST_RUN_S:
        raise ValueError(f"is longer than {_LONGEST_RUN_S / 86400:.0f}d, which is the limit")
    return value


class GcpSettings(Model):
    """`cluster.settings` for Google Cloud."""

    nodes_cidr: Annotated[str, _block(_NODES)] = Field(
        "10.42.0.0/20", description="the nodes' addresses; must not overlap with networks that are peered"
    )
    pods_cidr: Annotated[str, _block(_PODS)] = Field(
        "10.44.0.0/14", description="the pods' addresses: 256 for each node"
    )
    services_cidr: Annotated[str, _block(_SERVICES)] = Field(
        "10.43.0.0/20", description="addresses of Kubernetes' services"
    )
    gpu_cidr: Annotated[str, _block(_GPUS)] = Field(
        "10.48.0.0/16",
        description="addresses of the network cards that only the GPUs use, if the machine type has them",
    )
    regional: bool = Field(
        default=False, description="place the control plane and the CPU nodes in three zones"
    )
    release_channel: Literal["RAPID", "REGULAR", "STABLE", "EXTENDED"] = Field(
        "REGULAR", description="GKE's channel of Kubernetes versions"
    )
    cpu_machine_type: str = Field("e2-standard-4", description="machine type of the CPU nodes")
    cpu_nodes: PositiveInt = Field(2, description="number of CPU nodes, for pods that do not train")
    gpu_root_gib: Annotated[int, Field(ge=50, le=65536)] = Field(
        200, description="GiB of a GPU node's root disk, which holds images"
    )
    local_ssds: Annotated[int, Field(ge=0, le=32)] | None = Field(
        None,
        description="local SSDs of 375 GiB that a GPU node gets if its machine type has none built in; for "
        "an A2 machine 4 or 8 when absent, for others none",
    )
    gpu_driver: Literal["DEFAULT", "LATEST"] = Field("LATEST", description="GKE's version of the GPU driver")
    reservation: str | None = Field(
        None,
        pattern=r"^(projects/[^/]+/reservations/)?[a-z]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="a reservation of GPU nodes in this project, or projects/P/reservations/NAME in another",
    )
    flex_start: bool = Field(
        default=False, description="wait in Google's queue (flex-start) if no GPU nodes are available"
    )
    max_run_duration: Annotated[str, AfterValidator(_run)] | None = Field(
        None, description="longest life of a flex-start node, up to 7d"
    )
    compact: bool = Field(default=True, description="place the GPU nodes of one zone close to each other")
    lustre_gib: Annotated[int, Field(ge=0)] = Field(
        0, description="GiB of a Managed Lustre file system; none when 0"
    )
    lustre_throughput: Literal[125, 250, 500, 1000] = Field(
        250, description="MB/s of the file system for each TiB"
    )
    lustre_cidr_bits: Annotated[int, Field(ge=16, le=24)] = Field(
        20, description="prefix length of the block of addresses for Google's side of the file system"
    )
    bucket: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$",
        description="the bucket's name; made from cluster, project and region when absent",
    )
    prefix: str = Field(
        "",
        pattern=r"^([A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*)?$",
        description="the part of the bucket that runs use; all of it when empty",
    )
    kms_key: str | None = Field(
        None,
        pattern=r"^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$",
        description="your own key for Kubernetes' secrets and the data; Google's when absent",
    )
    service_account: str = Field(
        "cloudrec/cloudrec",
        pattern=r"^[a-z0-9-]+/[a-z0-9-]+$",
        description="namespace/name of the runs' Kubernetes service account",
    )
    guard_role: str | None = Field(
        None,
        pattern=r"^(roles|projects/[^/]+/roles)/[A-Za-z0-9_.]+$",
        description="role of the guard for its cluster; when absent, the project's cloudrecGuard "
        "(infra/gcp), else roles/container.clusterAdmin",
    )
    enable_apis: bool = Field(default=True, description="enable the APIs that the project lacks")
    labels: Annotated[dict[str, str], AfterValidator(_labels)] = Field(
        default_factory=dict, description="labels on every node"
    )

    @model_validator(mode="after")
    def _apart(self) -> Self:
        names = ("nodes_cidr", "pods_cidr", "services_cidr", "gpu_cidr")
        blocks = {name: ipaddress.IPv4Network(getattr(self, name)) for name in names}
        for name, block in blocks.items():
            for other, against in blocks.items():
                if name < other and block.overlaps(against):
                    raise ValueError(f"{name} {block} and {other} {against} overlap")
        return self

    @model_validator(mode="after")
    def _capacity(self) -> Self:
        step = LUSTRE_STEPS[self.lustre_throughput]
        if self.lustre_gib % step:
            raise ValueError(
                f"lustre_gib {self.lustre_gib} is no size of a file system with "
                f"{self.lustre_throughput} MB/s for each TiB: set 0 (none) or a multiple of {step}"
            )
        return self

    @model_validator(mode="after")
    def _one_way_to_wait(self) -> Self:
        if self.reservation and self.flex_start:
            raise ValueError("reservation and flex_start exclude each other: set one of them")
        return self


def settings_of(cluster: ClusterSpec) -> GcpSettings:
    """Return the validated settings of a cluster; SpecError if they are invalid."""
    return validated(GcpSettings, cluster.settings, {})
