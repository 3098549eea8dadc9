"""Clusters that use the storage of another one: the settings that they cannot have, and the bucket's tags.

A bucket (on Azure a storage account) has a tag for each other cluster that uses it, so that `down` knows of
it on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.spec.models import ClusterSpec, Model

LUSTRE_REMEDY = (
    "use a cluster without --storage-of: a Lustre file system is filled from the cluster's own bucket"
)
_REASONS = {
    "bucket": "the bucket is that of the other cluster",
    "storage_account": "the storage account is that of the other cluster",
    "container": "the container is that of the other cluster",
    "prefix": "the prefix is that of the other cluster",
    "lustre_gib": "a Lustre file system is filled from the cluster's own bucket",
    "lustre_importer": "a Lustre file system is filled from the cluster's own container",
}


USED_BY = "cloudrec-used-by-"  # the beginning of a tag's name, before the cluster's; the value is its region


def users_of(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the region of each other cluster that uses a bucket, by the cluster's name."""
    return {name.removeprefix(USED_BY): region for name, region in tags.items() if name.startswith(USED_BY)}


def with_user(tags: Mapping[str, str], cluster: str, region: str | None) -> dict[str, str]:
    """Return a bucket's tags with a cluster that uses it, or without it if the region is None."""
    name = f"{USED_BY}{cluster}"
    others = {key: value for key, value in tags.items() if key != name}
    return others if region is None else {**others, name: region}


def check(cluster: ClusterSpec, settings: Model) -> None:
    """Raise SpecError if a cluster with the storage of another one has settings for its own.

    Args:
        cluster: the spec.
        settings: the provider's settings of the cluster.
    """
    if cluster.storage_of is None:
        return
    for name in (each for each in _REASONS if each in settings.model_fields_set):
        if value := getattr(settings, name):
            raise SpecError(
                f"cluster.settings.{name} is {value}, and cluster.storage_of is {cluster.storage_of}: "
                f"{_REASONS[name]}",
                remedy=f"leave cluster.settings.{name} or --storage-of out",
            )
