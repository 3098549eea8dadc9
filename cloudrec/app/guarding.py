"""The guard of a cluster as objects: what it runs from, who it is, and when the cluster ends."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec.kube.target import Target
from cloudrec.manifests import Guarding, guard_objects
from cloudrec.pod.guard import Note

if TYPE_CHECKING:
    from cloudrec.provider import Provider
    from cloudrec.spec.models import ClusterSpec


def guard_of(
    provider: Provider,
    cluster: ClusterSpec,
    *,
    image: str,
    hourly_usd: float = 0.0,
    began: float | None = None,
) -> tuple[dict[str, Any], ...]:
    """Return the guard's objects, in the order in which they are applied; none for a cluster without an end.

    Args:
        provider: the cluster's.
        cluster: as the journal has it, with its end.
        image: what the guard runs from: the trainer's image will do.
        hourly_usd: what the cluster costs an hour; 0 where nobody knows.
        began: since when, in seconds since the epoch; None where nobody knows.

    Raises:
        PreflightError: the cluster is not up.
    """
    if cluster.expires is None and cluster.budget_usd is None:
        return ()
    told = provider.guard(cluster)
    since = datetime.fromtimestamp(began, UTC).isoformat() if began is not None else ""
    guarding = Guarding(
        cluster=cluster.title,
        owner=cluster.owner,
        image=image,
        note=Note(cluster=told.cluster, hourly_usd=hourly_usd, began=since).to_json(),
        cordons=told.cordons,
        environment=told.environment,
        annotations=told.annotations,
        pod_labels=told.pod_labels,
    )
    return guard_objects(Target.of(provider.access(cluster).details), guarding)
