"""What `up` and `down` require of clusters that share a storage.

The second cluster may be in another region; its provider and its account are those of the first. `up` adds
what it knows of the storage to the spec, as it adds the end. So the resources stay a function of the spec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.app.accounts import OtherAccountError
from cloudrec.app.records import known_clusters
from cloudrec.errors import PreflightError, SpecError, UsageError
from cloudrec.providers.base.protocol import SharesStorage, account_of
from cloudrec.providers.base.storage.sharing import USED_BY, users_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.app.records import KnownCluster
    from cloudrec.engine.graph import Observed
    from cloudrec.providers.base.protocol import Provider
    from cloudrec.spec.models import ClusterSpec, SharedStorageSpec


def with_storage(
    app: AppContext, provider: Provider, cluster: ClusterSpec, known: KnownCluster | None
) -> ClusterSpec:
    """Return the spec with the storage of the other cluster, if the runs use one.

    Args:
        app: what every use case works with.
        provider: the cluster's provider.
        cluster: what is asked for.
        known: the record of this cluster; None for a new one, which alone can choose.

    Raises:
        SpecError: the storage cannot be used, or the cluster has another one.
        OtherAccountError: the other cluster is in another account.
        PreflightError: the other cluster does not exist, or its storage is not ready.
    """
    asked = cluster.storage_of
    had = known.cluster.storage_of if known is not None else asked
    if asked not in {None, had}:
        _refuse_change(cluster, had)
    if had is None:
        return cluster.model_copy(update={"storage": None})
    storage = known.cluster.storage if known is not None else None
    if storage is None:
        storage = _storage_of(app, provider, cluster, had)
    cluster = cluster.model_copy(update={"storage_of": had, "storage": storage})
    # An `up` without the option keeps the storage, and so has not been checked for it.
    provider.check(cluster)
    return cluster


def check_unused(
    app: AppContext, provider: Provider, cluster: ClusterSpec, found: Sequence[Observed], *, keep_data: bool
) -> None:
    """Raise UsageError if the removal of a cluster takes the storage from other clusters.

    Args:
        app: what every use case works with.
        provider: the cluster's provider.
        cluster: the cluster that is to be removed.
        found: its resources; their tags name clusters that other machines have created.
        keep_data: whether the storage is kept.
    """
    stays = isinstance(provider, SharesStorage) and provider.is_kept_storage_usable
    if keep_data and stays:
        return
    here = [
        known.record.name
        for known in known_clusters(app, provider.name)
        if known.cluster.storage_of == cluster.title and known.record.name != cluster.title
    ]
    others = {
        name: region
        for seen in found
        for name, region in users_of(seen.tags).items()
        if name not in {*here, cluster.title}
    }
    if not here and not others:
        return
    names = [*here, *(f"{name} in {region}" for name, region in others.items())]
    commands = ", ".join(f"`cloudrec down --cluster {name}`" for name in (*here, *others))
    tags = ", ".join(f"{USED_BY}{name}" for name in others)
    elsewhere = f", where it was created (or, if it no longer exists, remove the bucket's tag {tags})"
    keep = ", or keep the storage with --keep-data"
    raise UsageError(
        f"cluster {cluster.title!r} has the storage of {', '.join(names)}, whose runs would lose it",
        remedy=f"{commands} first{elsewhere if others else ''}{keep if stays else ''}",
    )


def note_user(provider: Provider, cluster: ClusterSpec, *, is_user: bool) -> None:
    """Write into the storage of another cluster whether this cluster uses it; nothing for its own storage."""
    if cluster.storage is not None and isinstance(provider, SharesStorage):
        provider.note_user(cluster, is_user=is_user)


def storage_text(provider: Provider, cluster: ClusterSpec) -> str:
    """Return whose storage the runs use, and what the traffic costs; empty for the cluster's own."""
    shared = cluster.storage
    if shared is None:
        return ""
    place = f"{shared.account}/{shared.bucket}" if shared.account else shared.bucket
    text = f"that of cluster {shared.cluster} in {shared.region} ({place})"
    traffic = provider.storage_traffic(cluster) if isinstance(provider, SharesStorage) else None
    if traffic is None:
        return text
    if traffic.usd_per_gb is None:
        return f"{text}; what a GB from there costs is not known"
    return f"{text}; a GB from there costs ${traffic.usd_per_gb:g} ({traffic.label})"


def _refuse_change(cluster: ClusterSpec, had: str | None) -> None:
    there = f"that of cluster {had}" if had is not None else "its own"
    raise SpecError(
        f"cluster.storage_of is {cluster.storage_of}, but the storage of cluster {cluster.title!r} is "
        f"{there} and cannot be changed",
        remedy=f"leave --storage-of out, choose another --cluster, or `cloudrec down --cluster "
        f"{cluster.title}` first",
    )


def _storage_of(app: AppContext, provider: Provider, cluster: ClusterSpec, name: str) -> SharedStorageSpec:
    """Return the storage of another cluster, if this one can use it."""
    if not isinstance(provider, SharesStorage):
        raise SpecError(
            f"cluster.storage_of is {name}, but clusters of provider {provider.name!r} cannot use the "
            "storage of another one",
            remedy="leave --storage-of out; clusters on aws, azure and gcp can",
        )
    if name == cluster.title:
        raise SpecError(
            f"cluster.storage_of is {name}, the cluster itself",
            remedy="name another cluster, or leave --storage-of out",
        )
    first = _first(app, provider, name)
    own, theirs = account_of(provider, cluster), first.record.account
    if own != theirs:
        raise OtherAccountError(
            f"cluster {name!r} is in {theirs or 'an unknown account'}; the current credentials are for {own}",
            remedy=f"use the credentials of the account of {name}; a storage is shared within one account",
        )
    _check_ready(app, provider, first)
    provider.check_sharing(cluster, first.cluster)
    return provider.shared_storage(first.cluster)


def _first(app: AppContext, provider: Provider, name: str) -> KnownCluster:
    """Return the cluster that has the storage, with its whole specification."""
    found = known_clusters(app, name=name)
    if not found:
        raise PreflightError(
            f"cluster.storage_of is {name}, and there is no such cluster",
            remedy=f"`cloudrec status` lists the clusters of this machine; `cloudrec up {provider.name} "
            f"--cluster {name}` creates it",
        )
    first = found[0]
    if first.record.provider != provider.name:
        raise SpecError(
            f"cluster.storage_of is {name}, which is of provider {first.record.provider!r}, not of "
            f"{provider.name!r}",
            remedy=f"name a cluster of provider {provider.name}, or leave --storage-of out",
        )
    if (theirs := first.whole().storage_of) is not None:
        raise SpecError(
            f"cluster.storage_of is {name}, which itself uses the storage of {theirs}",
            remedy=f"use --storage-of {theirs}",
        )
    return first


def _check_ready(app: AppContext, provider: SharesStorage, first: KnownCluster) -> None:
    """Raise PreflightError for a cluster that is not up completely: its storage may be about to be made."""
    name, record = first.record.name, first.record
    made = any(seen.identity and seen.kind == provider.storage_kind for seen in app.journal.known(name))
    lacks = ", ".join(each.what for each in record.missing)
    if made and not record.is_down and not lacks:
        return
    why = f"it lacks {lacks}" if lacks else "it is down" if record.is_down else "it has no storage yet"
    raise PreflightError(
        f"cluster.storage_of is {name}, which is not ready: {why}",
        remedy=f"`cloudrec up {record.provider} --cluster {name}` first",
    )
