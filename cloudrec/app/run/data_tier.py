"""Where the nodes of a cluster read a dataset: the tier is chosen before anything is created or launched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.agent.upload.staging import list_files
from cloudrec.engine.plan import PlannedData
from cloudrec.errors import DataError, StorageError
from cloudrec.launchers.base.results_store import is_remote, open_place
from cloudrec.launchers.base.runspec import is_own_trainer
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec.providers.base.protocol import DataPlaces, FillsLustre, HoldsData
from cloudrec.providers.base.storage import tiers as places
from cloudrec.providers.base.storage.tiers import AUTO, LOCAL, LUSTRE, DataChoice, Tier, choose
from cloudrec_contract.objectstore.retries import Patience

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.launchers.base.protocol import Launcher
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.providers.base.access import Access
    from cloudrec.providers.base.protocol import Provider
    from cloudrec.spec.models import ClusterSpec

_BRIEFLY = Patience(attempts=2, rounds=1)  # the nodes read the dataset; this machine need not be able to


@dataclass(frozen=True, kw_only=True)
class DatasetWish:
    """The dataset that a cluster is for.

    Attributes:
        uri: the dataset.
        tier: auto, or the name of the tier that must be used.
    """

    uri: str
    tier: str = AUTO


def size_gb(app: AppContext, uri: str) -> float | None:
    """Return the size of the files of a dataset, from its dataset.json or else from a list of them.

    Returns None, and reports the reason, if this machine cannot read it, or if it is not there yet: the pods
    check it again, and have the last word.
    """
    try:
        _, files = list_files(open_place(uri, patience=_BRIEFLY))
    except (StorageError, DataError) as error:
        app.report(f"note: the size of {uri} is not known, so no disk was compared with it: {error.message}")
        return None
    return sum(file.size for file in files) / 1e9


def planned(
    app: AppContext, provider: Provider, cluster: ClusterSpec, wish: DatasetWish | None
) -> PlannedData | None:
    """Return where the nodes of a cluster would read a dataset; None without a dataset in an object store.

    Raises:
        PreflightError: no tier has room for it.
    """
    if wish is None or not is_remote(wish.uri) or not isinstance(provider, HoldsData):
        return None
    found = provider.data_places(cluster)
    chosen = choose(size_gb(app, wish.uri), _usable(found, wish.uri), wanted=wish.tier)
    return plan_of(chosen)


def plan_of(chosen: DataChoice) -> PlannedData:
    """Return a choice as plans show it."""
    tier = chosen.tier
    return PlannedData(
        line=chosen.line,
        tier=tier.name,
        size_gb=chosen.size_gb,
        read_gb_s=tier.read_gb_s,
        basis=tier.basis,
        source=tier.source,
    )


def with_tier(
    app: AppContext, cluster: ClusterSpec, spec: RunSpec, access: Access, launcher: Launcher, *, wanted: str
) -> tuple[RunSpec, DataChoice | None]:
    """Return the spec of a run whose pods read the dataset from the tier that is chosen, and the choice.

    The spec is unchanged for a dataset that is in no object store, and for a program with its own data.

    Raises:
        PreflightError: no tier has room for it.
    """
    uri = spec.trainer.dataset_path
    if (
        not isinstance(access, KubernetesAccess)
        or not launcher.nodes_of_cluster
        or not uri
        or not is_remote(uri)
        or not is_own_trainer(spec.trainer_command)
    ):
        return spec, None
    found = _places(app, cluster, access, nodes=spec.nodes)
    mounted = {str(volume["name"]) for volume in access.target.volumes}
    there = [_mountable(tier, mounted) for tier in _usable(found, uri)]
    chosen = choose(size_gb(app, uri), there, wanted=wanted)
    if chosen.tier.name == LOCAL:
        return replace(spec, staged_gb=chosen.size_gb or 0.0), chosen
    below, provider = _below(uri, found.storage), app.provider(cluster.provider)
    if chosen.tier.name == LUSTRE and isinstance(provider, FillsLustre):
        below = provider.path_in_lustre(cluster, below)
    from cloudrec.kubernetes.manifests.shared import ROOT  # noqa: PLC0415 - with all manifests

    path = f"{ROOT}/{chosen.tier.name}/{below}"
    return replace(spec, trainer_flags=(*spec.trainer_flags, f"--dataset_path={path}")), chosen


def fill(app: AppContext, cluster: ClusterSpec, spec: RunSpec, uri: str) -> None:
    """Import a run's dataset into the cluster's Lustre file system, if that is how it is filled.

    Args:
        app: the context of the use case.
        cluster: the cluster.
        spec: the run.
        uri: the dataset in the cluster's storage.

    Raises:
        CloudrecError: the import fails.
    """
    provider = app.provider(cluster.provider)
    if isinstance(provider, FillsLustre):
        app.report(f"importing {uri} into the Lustre file system")
        provider.fill_lustre(cluster, _below(uri, spec.storage))


def _places(app: AppContext, cluster: ClusterSpec, access: KubernetesAccess, *, nodes: int) -> DataPlaces:
    """Return the tiers of the nodes that a cluster has now."""
    provider = app.provider(cluster.provider)
    target = access.target
    if isinstance(provider, HoldsData):
        update = {"instance_types": (target.instance_type,), "nodes": nodes}
        return provider.data_places(cluster.model_copy(update=update))
    room = float(target.disk_gb) if target.disk_gb else None
    remedy = "use nodes with larger disks, or a dataset_path on a volume that they mount"
    own = places.local(title="the nodes' disks", room_gb=room, rate=None, remedy=remedy)
    return DataPlaces(tiers=(own,), storage=access.storage)


def _usable(found: DataPlaces, uri: str) -> Sequence[Tier]:
    """Return the tiers, those of the cluster's storage lacking if the dataset is elsewhere."""
    if _below(uri, found.storage):
        return found.tiers
    lacks = f"it has what is in {found.storage}, and the dataset is elsewhere"
    remedy = "copy the dataset there: `cloudrec data push`"
    return [
        tier if tier.name == LOCAL or tier.lacks else replace(tier, lacks=lacks, remedy=remedy)
        for tier in found.tiers
    ]


def _mountable(tier: Tier, mounted: set[str]) -> Tier:
    if tier.name == LOCAL or tier.lacks or tier.name in mounted:
        return tier
    return replace(tier, lacks="the cluster has no such volume yet")


def _below(uri: str, storage: str) -> str:
    """Return the path of a dataset below the cluster's storage; empty if it is elsewhere."""
    root = f"{storage.rstrip('/')}/"
    return uri.rstrip("/").removeprefix(root) if uri.startswith(root) else ""
