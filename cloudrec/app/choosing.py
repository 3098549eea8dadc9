"""The choice of the cluster for a command: the named one, or the only one that matches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from cloudrec import providers
from cloudrec.app.accounts import check_account
from cloudrec.app.records import known_clusters
from cloudrec.errors import DataError, PreflightError, UsageError
from cloudrec.spec.models import ClusterSpec, default_owner

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.engine.graph import Observed

_USUAL = ClusterSpec().provider  # the default provider


def choose(app: AppContext, *, provider_name: str | None, cluster_name: str | None) -> ClusterSpec:
    """Return the cluster for a run: the named one, or the only one that matches.

    Raises:
        PreflightError: there is none; the remedy creates it.
        UsageError: several match, or the cluster is in another account than that of the credentials.
        CloudrecError: its record in the journal cannot be read completely.
    """
    fitting = known_clusters(app, provider_name, cluster_name)
    if not fitting:
        wanted = " ".join(
            ["cloudrec up", provider_name or _USUAL, *(["--cluster", cluster_name] if cluster_name else [])]
        )
        named = f"no cluster {cluster_name!r}" if cluster_name else "no cluster"
        of_provider = f" of provider {provider_name!r}" if provider_name else ""
        if others := known_clusters(app, None, cluster_name):
            there = " or ".join(
                f"--provider {each.record.provider} --cluster {each.record.name}" for each in others
            )
            wanted = f"name one that is up, {there}; or make one: {wanted}"
        raise PreflightError(f"{named}{of_provider} is up", remedy=wanted)
    _only([each.cluster for each in fitting])
    cluster = fitting[0].whole()
    if fitting[0].record.account:
        check_account(app.provider(cluster.provider), cluster, fitting[0].record)
    return cluster


def _only(fitting: Sequence[ClusterSpec]) -> ClusterSpec:
    if len(fitting) > 1:
        raise UsageError(
            f"{len(fitting)} clusters match: {', '.join(cluster.title for cluster in fitting)}",
            remedy="name one with --cluster",
        )
    return fitting[0]


def cluster_to_remove(
    app: AppContext, provider_name: str | None, cluster_name: str | None
) -> ClusterSpec | None:
    """Return the cluster to remove; if the journal does not have it, the one that a search by tag finds.

    One with another owner's tag must be named: several people may use one account or Kubernetes cluster.

    Raises:
        PreflightError: no provider could be searched.
        UsageError: several match, or the only ones have other owners and none is named.
    """
    fitting = [each.cluster for each in known_clusters(app, provider_name, cluster_name)]
    if not cluster_name:
        fitting += _own(_strangers(app, provider_name or _USUAL, None, fitting), is_alone=not fitting)
    elif provider_name:
        fitting += _strangers(app, provider_name, cluster_name, fitting)
    elif not fitting:
        fitting = _found_anywhere(app, cluster_name)
    return _only(fitting) if fitting else None


def _own(found: Sequence[ClusterSpec], *, is_alone: bool) -> list[ClusterSpec]:
    """Return those of the user; UsageError if there are only other owners' and nothing else matches."""
    own = [cluster for cluster in found if cluster.owner == default_owner()]
    if found and not own and is_alone:
        names = ", ".join(f"{cluster.title} (owner {cluster.owner})" for cluster in found)
        raise UsageError(
            f"this machine has no record of a cluster, and those found have another owner: {names}",
            remedy=f"name the one to remove: cloudrec down {found[0].provider} --cluster {found[0].title}",
        )
    return own


def _found_anywhere(app: AppContext, cluster_name: str) -> list[ClusterSpec]:
    """Search all providers that are configured here; report the others."""
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
    found: dict[str, ClusterSpec] = {}
    for seen in seen_there:
        if seen.cluster and seen.cluster not in titles:
            try:
                found[seen.cluster] = stranger(provider_name, seen)
            except DataError:  # not a valid name of a cluster; `cloudrec leaks` shows such resources
                continue
    return [found[title] for title in sorted(found)]


def stranger(provider_name: str, seen: Observed) -> ClusterSpec:
    """Return the specification of a cluster that is not in the journal, from one of its resources.

    Raises:
        DataError: the resource's tags have values that no cluster has; anyone who may tag it can write them.
    """
    try:
        return ClusterSpec(
            name=seen.cluster,
            provider=provider_name,
            owner=seen.owner or "unknown",
            region=seen.location or None,
        )
    except ValidationError as error:
        raise DataError(
            f"{seen.kind} {seen.identity} is tagged with the cluster {seen.cluster!r}, which is no name",
            remedy="remove the tag, or the resource, with the cloud's own tools",
        ) from error
