"""Names and tags of a cluster's resources, on any cloud."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from typing_extensions import TypeVar

from cloudrec.engine.graph import TAG_CLUSTER, TAG_EXPIRES, TAG_KEY, TAG_OWNER, Prepaid, Properties, Resource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.spec.models import ClusterSpec

GUARD_ACCOUNT = "cloudrec-guard"
_HASH = 8
_P = TypeVar("_P", bound=Properties, default=Properties)


@dataclass(frozen=True, kw_only=True)
class CloudLayout:
    """The names and tags of a cluster's resources; equal specs give equal layouts.

    Attributes:
        cluster: the spec.
    """

    cluster: ClusterSpec

    @property
    def title(self) -> str:
        """The cluster's name."""
        return self.cluster.title

    @property
    def has_own_storage(self) -> bool:
        """Whether the storage is a resource of this cluster, rather than of another one."""
        return self.cluster.storage is None

    @property
    def name(self) -> str:
        """The cluster's name in the cloud; other resources have it with a suffix."""
        return f"cloudrec-{self.title}"

    def called(self, suffix: str = "") -> str:
        """Return a resource's name in the cluster's graph: the title, with the suffix if there is one."""
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
        properties: _P | None = None,
        tags: Mapping[str, str] | None = None,
        hourly_usd: float | None,
        node_type: str = "",
        gpus: int = 0,
        pool: str = "",
        nodes: int = 0,
        priced: str = "",
        prepaid: Prepaid | None = None,
        holds_data: bool = False,
        candidates: tuple[Resource, ...] = (),
        is_shared: bool = False,
    ) -> Resource[_P]:
        """Return a resource with the cluster's name and tags; see `Resource` for the arguments."""
        return Resource(
            kind=kind,
            name=self.called(suffix),
            needs=tuple(needs),
            properties=properties or cast("_P", Properties()),
            tags={**self.tags(self.key(kind, suffix), suffix), **(tags or {})},
            hourly_usd=hourly_usd,
            node_type=node_type,
            gpus=gpus,
            pool=pool,
            nodes=nodes,
            priced=priced,
            prepaid=prepaid,
            holds_data=holds_data,
            candidates=candidates,
            is_standby=bool(candidates) and bool(self.cluster.managed),
            is_shared=is_shared,
        )

    def tags(self, key: str, suffix: str = "") -> dict[str, str]:
        """Return the tags with which a resource of this key is created."""
        expires = {TAG_EXPIRES: self.cluster.expires} if self.cluster.expires else {}
        return {
            "Name": f"{self.name}-{suffix}" if suffix else self.name,
            TAG_CLUSTER: self.title,
            TAG_OWNER: self.cluster.owner,
            TAG_KEY: key,
            **expires,
        }


def shortened(name: str, longest: int) -> str:
    """Return the name, or if it is longer than `longest` its beginning and a hash of the whole name."""
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH]
    return f"{name[: longest - _HASH - 1].rstrip('-')}-{digest}"


def guard_account_of(service_account: str) -> str:
    """Return the guard's service account as NAMESPACE/NAME, in the namespace of the runs' account.

    It is separate from the runs': no run may have the guard's rights.
    """
    return f"{service_account.partition('/')[0]}/{GUARD_ACCOUNT}"
