"""What a cluster's resources are called, how they are tagged, and in which zones they are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import TAG_CLUSTER, TAG_EXPIRES, TAG_KEY, TAG_OWNER, Resource
from cloudrec.providers.aws.prices import shipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.aws.offers import Hardware
    from cloudrec.providers.aws.prices import Prices
    from cloudrec.providers.aws.settings import AwsSettings
    from cloudrec.spec.models import ClusterSpec

TAG_REGION = "cloudrec-region"  # on what is global, so that each region's search finds its own
TAG_ZONES = "cloudrec-zones"  # on the VPC: the zones that it was laid out for
_LONGEST_ROLE, _LONGEST_BUCKET = 64, 63
_HASH = 8


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Everything that is decided before a resource is described; the same spec gives the same layout.

    Attributes:
        cluster: the spec.
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

    cluster: ClusterSpec
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
    def title(self) -> str:
        """The cluster's name."""
        return self.cluster.title

    @property
    def name(self) -> str:
        """What AWS calls the cluster and, with a suffix, everything of it."""
        return f"cloudrec-{self.title}"

    @property
    def bucket(self) -> str:
        """The bucket's name: unique in the world, recomputable by us."""
        return self.settings.bucket or _shortened(
            f"{self.name}-{self.account}-{self.region}", _LONGEST_BUCKET
        )

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
        return _shortened(f"{self.name}-{self.region}-{suffix}", _LONGEST_ROLE)

    def called(self, suffix: str = "") -> str:
        """Return the name within the cluster's graph: the title, and the suffix where there is one."""
        return f"{self.title}-{suffix}" if suffix else self.title

    def key(self, kind: str, suffix: str = "") -> str:
        """Return the key of a resource."""
        return f"{kind}/{self.called(suffix)}"

    def keys(self, kind: str, suffixes: Sequence[str]) -> tuple[str, ...]:
        """Return the keys of several resources of a kind."""
        return tuple(self.key(kind, suffix) for suffix in suffixes)

    def resource(
        self,
        kind: str,
        suffix: str = "",
        *,
        needs: Sequence[str] = (),
        properties: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        hourly_usd: float = 0.0,
        holds_data: bool = False,
        candidates: tuple[Resource, ...] = (),
    ) -> Resource:
        """Describe one resource, named and tagged as all of the cluster are."""
        return Resource(
            kind=kind,
            name=self.called(suffix),
            needs=tuple(needs),
            properties=properties or {},
            tags={**self.tags(self.key(kind, suffix), suffix), **(tags or {})},
            hourly_usd=hourly_usd,
            holds_data=holds_data,
            candidates=candidates,
        )

    def tags(self, key: str, suffix: str = "") -> dict[str, str]:
        """Return what a resource of this key is born with."""
        expires = {TAG_EXPIRES: self.cluster.expires} if self.cluster.expires else {}
        return {
            "Name": f"{self.name}-{suffix}" if suffix else self.name,
            TAG_CLUSTER: self.title,
            TAG_OWNER: self.cluster.owner,
            TAG_KEY: key,
            **expires,
        }


def _shortened(name: str, longest: int) -> str:
    """Return the name, or where it is too long its beginning and a hash of all of it."""
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH]
    return f"{name[: longest - _HASH - 1].rstrip('-')}-{digest}"
