"""Settings that a cluster which uses the storage of another one cannot have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import SpecError

if TYPE_CHECKING:
    from cloudrec.spec.models import ClusterSpec

LUSTRE_REMEDY = (
    "use a cluster without --storage-of: a Lustre file system is filled from the cluster's own bucket"
)
_REASONS = {
    "bucket": "the bucket is that of the other cluster",
    "prefix": "the prefix is that of the other cluster",
    "lustre_gib": "a Lustre file system is filled from the cluster's own bucket",
}


def check(cluster: ClusterSpec, *, bucket: str | None, prefix: str, lustre_gib: int) -> None:
    """Raise SpecError if a cluster with the storage of another one has settings for its own.

    Args:
        cluster: the spec.
        bucket: the setting of this name.
        prefix: the setting of this name.
        lustre_gib: the setting of this name.
    """
    if cluster.storage_of is None:
        return
    given = {"bucket": bucket, "prefix": prefix, "lustre_gib": lustre_gib}
    for name, value in given.items():
        if value:
            raise SpecError(
                f"cluster.settings.{name} is {value}, and cluster.storage_of is {cluster.storage_of}: "
                f"{_REASONS[name]}",
                remedy=f"leave cluster.settings.{name} or --storage-of out",
            )
