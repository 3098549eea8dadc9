"""Which cluster is meant: the one named, or the only one that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec import providers
from cloudrec.errors import PreflightError, UsageError
from cloudrec.spec.models import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    """Return the cluster to remove; with the journal lost, whatever a search by tag finds.

    Raises:
        PreflightError: no provider that might know the cluster can be asked.
        UsageError: several fit.
    """
    fitting = list(_fitting(app, provider_name, cluster_name))
    if provider_name or not cluster_name:
        fitting += _strangers(app, provider_name or _USUAL, cluster_name, fitting)
    elif not fitting:
        fitting = _found_anywhere(app, cluster_name)
    return _only(fitting) if fitting else None


def _found_anywhere(app: AppContext, cluster_name: str) -> list[ClusterSpec]:
    """Search with all providers that can be asked; those that nobody has set up here are told of."""
    found, silent = list[ClusterSpec](), list[PreflightError]()
    names = list(providers.names())
    for name in names:
        try:
            found += _strangers(app, name, cluster_name, ())
        except PreflightError as error:
            silent.append(error)
            app.report(f"{name} was not searched: {error.message}")
    if len(silent) == len(names):
        raise silent[0]
    return found


def _strangers(
    app: AppContext, provider_name: str, cluster_name: str | None, known: Iterable[ClusterSpec]
) -> list[ClusterSpec]:
    """Search for clusters of a provider that the journal does not know."""
    titles = {cluster.title for cluster in known}
    seen_there = app.provider(provider_name).search(cluster_name)
    found = {seen.cluster: stranger(provider_name, seen) for seen in seen_there if seen.cluster}
    return [found[title] for title in sorted(found.keys() - titles)]


def stranger(provider_name: str, seen: Observed) -> ClusterSpec:
    """What can be said of a cluster that no journal here knows, from one thing of it."""
    return ClusterSpec(
        name=seen.cluster,
        provider=provider_name,
        owner=seen.owner or "unknown",
        region=seen.location or None,
    )
