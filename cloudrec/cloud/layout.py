"""What a cluster's resources are called and how they are tagged, on any cloud."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import TAG_CLUSTER, TAG_EXPIRES, TAG_KEY, TAG_OWNER, Resource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.spec.models import ClusterSpec

_HASH = 8


@dataclass(frozen=True, kw_only=True)
class CloudLayout:
    """What is decided before a resource is described; the same spec gives the same layout.

    Attributes:
        cluster: the spec.
    """

    cluster: ClusterSpec

    @property
    def title(self) -> str:
        """The cluster's name."""
        return self.cluster.title

    @property
    def name(self) -> str:
        """What the cloud calls the cluster and, with a suffix, everything of it."""
        return f"cloudrec-{self.title}"

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
        is_shared: bool = False,
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
            is_shared=is_shared,
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


def shortened(name: str, longest: int) -> str:
    """Return the name, or where it is too long its beginning and a hash of all of it."""
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH]
    return f"{name[: longest - _HASH - 1].rstrip('-')}-{digest}"
