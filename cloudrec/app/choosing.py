"""Which cluster is meant: the one named, or the only one that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec import providers
from cloudrec.errors import PreflightError, UsageError
from cloudrec.spec.models import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.engine.graph import Observed

_USUAL = ClusterSpec().provider  # what is meant when nobody names a provider


def choose(app: AppContext, *, provider_name: str | None, cluster_name: str | None) -> ClusterSpec:
    """Return the cluster that a run is meant for: the one named, or the only one that fits.

    Raises:
        PreflightError: there is none; the remedy creates it.
        UsageError: several fit.
    """
    fitting = _fitting(app, provider_name, cluster_name)
    if not fitting:
        wanted = " ".join(
            ["cloudrec up", provider_name or _USUAL, *(["--cluster", cluster_name] if cluster_name else [])]
        )
        named = f"no cluster {cluster_name!r}" if cluster_name else "no cluster"
        of_provider = f" of provider {provider_name!r}" if provider_name else ""
        raise PreflightError(f"{named}{of_provider} is up", remedy=wanted)
    return _only(fitting)


def _fitting(app: AppContext, provider_name: str | None, cluster_name: str | None) -> Sequence[ClusterSpec]:
    return [
        ClusterSpec.model_validate(record.request)
        for record in app.journal.clusters()
        if provider_name in {None, record.provider} and cluster_name in {None, record.name}
    ]


def _only(fitting: Sequence[ClusterSpec]) -> ClusterSpec:
    if len(fitting) > 1:
        raise UsageError(
            f"{len(fitting)} clusters fit: {', '.join(cluster.title for cluster in fitting)}",
            remedy="name one with --cluster",
        )
    return fitting[0]


def cluster_to_remove(
    app: AppContext, provider_name: str | None, cluster_name: str | None
) -> ClusterSpec | None:
    """Return the cluster to remove; with the journal lost, whatever a search by tag finds."""
    fitting = list(_fitting(app, provider_name, cluster_name))
    known = {cluster.title for cluster in fitting}
    searched = [provider_name] if provider_name else list(providers.names()) if cluster_name else [_USUAL]
    for name in searched:
        seen_there = app.provider(name).search(cluster_name)
        strangers = {seen.cluster: stranger(name, seen) for seen in seen_there if seen.cluster}
        fitting += [strangers[title] for title in sorted(strangers.keys() - known)]
    return _only(fitting) if fitting else None


def stranger(provider_name: str, seen: Observed) -> ClusterSpec:
    """What can be said of a cluster that no journal here knows, from one thing of it."""
    return ClusterSpec(
        name=seen.cluster,
        provider=provider_name,
        owner=seen.owner or "unknown",
        region=seen.location or None,
    )
