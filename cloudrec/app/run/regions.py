"""The clusters of several regions between which the keepers move a run (`train --regions`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.app.choosing import choose
from cloudrec.app.records import known_clusters
from cloudrec.errors import PreflightError, SpecError, UsageError
from cloudrec.providers.base.protocol import AsksPrices, SharesStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.spec.load import Loaded
    from cloudrec.spec.models import ClusterSpec


def clusters_for(app: AppContext, loaded: Loaded) -> list[ClusterSpec]:
    """Return the clusters of a run, the preferred one first: one for each region, or the only one.

    Raises:
        PreflightError: no cluster is up, or none of a region shares the storage.
        SpecError: a region is named twice, or a cluster has no keeper that hands runs over.
        UsageError: the clusters of several storages match.
    """
    wanted = loaded.spec.cluster
    provider = wanted.provider if ("cluster", "provider") in loaded.origins else None
    is_named = wanted.name is not None and ("cluster", "name") not in loaded.of_file
    if is_named and ("cluster", "provider") in loaded.of_file:
        provider = None  # --cluster names one of any provider, whatever the file describes
    regions = loaded.spec.train.regions
    if not regions:
        return [choose(app, provider_name=provider, cluster_name=wanted.name)]
    if len(set(regions)) < len(regions):
        raise SpecError(
            f"train.regions names a region twice: {', '.join(regions)}", remedy="name each region once"
        )
    group = _group(app, provider, wanted.name)
    found = [_in_region(app, group, region) for region in regions]
    if len(found) > 1 and (alone := [each.title for each in found if not each.managed]):
        raise SpecError(
            f"cluster {alone[0]!r} is not managed: it has no keeper that hands a run over to another region",
            remedy="leave --regions out, or use clusters made with `cloudrec up --managed`",
        )
    # Their records are checked as those of every run: account, damage.
    return [choose(app, provider_name=each.provider, cluster_name=each.title) for each in found]


def refuse_unequal(first: RunSpec, other: RunSpec) -> None:
    """Raise SpecError if a run would have other ranks in another cluster.

    A run may continue on other machines, but each step has the samples of all ranks.
    """
    if (first.nodes, first.nproc_per_node) != (other.nodes, other.nproc_per_node):
        raise SpecError(
            f"the run has {first.nodes} x {first.nproc_per_node} ranks in cluster {first.cluster!r}, and "
            f"{other.nodes} x {other.nproc_per_node} in {other.cluster!r}",
            remedy="give numbers that both have: --nodes and --nproc-per-node",
        )
    if first.storage != other.storage:
        raise SpecError(
            f"cluster {other.cluster!r} stores results in {other.storage}, and {first.cluster!r} in "
            f"{first.storage}",
            remedy=f"make a cluster there with `cloudrec up --storage-of {first.cluster}`",
        )


def _group(app: AppContext, provider: str | None, name: str | None) -> list[ClusterSpec]:
    """Return the clusters that share one storage: that of the named cluster, or of the only one."""
    known = [each.cluster for each in known_clusters(app, provider)]
    owners = dict.fromkeys(_owner(each) for each in known if name in {None, each.title})
    if not owners:
        raise PreflightError(
            f"no cluster {name!r} is up" if name else "no cluster is up", remedy="cloudrec up PROVIDER"
        )
    if len(owners) > 1:
        raise UsageError(
            f"the clusters of {len(owners)} storages match: {', '.join(owners)}",
            remedy="name one with --cluster",
        )
    return [each for each in known if _owner(each) in owners]


def _owner(cluster: ClusterSpec) -> str:
    """Return the cluster whose storage a cluster uses."""
    return cluster.storage.cluster if cluster.storage is not None else cluster.title


def _in_region(app: AppContext, group: Sequence[ClusterSpec], region: str) -> ClusterSpec:
    found = [each for each in group if _region(app, each) == region]
    owner = _owner(group[0])
    provider = group[0].provider
    if not found and not isinstance(app.provider(provider), SharesStorage):
        raise SpecError(
            f"train.regions names {region!r}, but clusters of provider {provider!r} cannot use the storage "
            "of another one, so that runs do not move between regions",
            remedy="leave --regions out; clusters on aws, azure and gcp can",
        )
    if not found:
        raise PreflightError(
            f"no cluster in region {region!r} uses the storage of cluster {owner!r}",
            remedy=f"cloudrec up {provider} --cluster {owner}-{region} --region {region} "
            f"--storage-of {owner}",
        )
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} clusters in region {region!r} use the storage of cluster {owner!r}: "
            f"{', '.join(each.title for each in found)}",
            remedy="a run uses one cluster of a region: remove the others, or name other regions",
        )
    return found[0]


def _region(app: AppContext, cluster: ClusterSpec) -> str:
    if cluster.region:
        return cluster.region
    provider = app.provider(cluster.provider)
    return provider.price_region(cluster) if isinstance(provider, AsksPrices) else ""
