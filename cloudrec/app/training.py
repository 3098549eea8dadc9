"""The use case `train`: from a validated spec to a running trainer."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudrec import __version__
from cloudrec.app.addons import guard_run, image_for, is_kubernetes
from cloudrec.app.choosing import choose
from cloudrec.app.trainer_config import (
    absolute_flags,
    check_configuration,
    check_dataset,
    refuse_secrets,
    trainer_config,
)
from cloudrec.errors import SpecError, UsageError
from cloudrec.launch import launcher as find_launcher
from cloudrec.launch.folder import RunFolder, create_run
from cloudrec.launch.ledger import RunState
from cloudrec.launch.runspec import RunSpec, default_trainer_command, new_run_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.launch.base import Launcher, LaunchPlan, RunHandle
    from cloudrec.provider import Access, Offer
    from cloudrec.spec.load import Loaded
    from cloudrec.spec.models import ClusterSpec

_RESUMABLE = (RunState.FAILED, RunState.INTERRUPTED)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A run that is ready to be submitted: what a dry run prints is what a real one does."""

    spec: RunSpec
    plan: LaunchPlan
    hourly_usd: float


def train(
    app: AppContext, loaded: Loaded, flags: Sequence[str], *, decide: Callable[[Launch], bool]
) -> RunFolder | None:
    """Launch a new run; returns once it is under way, or None where `decide` said to go no further.

    Args:
        app: what every use case works with.
        loaded: the spec, with where each value stood.
        flags: more flags for the trainer, passed verbatim.
        decide: is shown what would be launched.

    Raises:
        SpecError: the trainer refuses its configuration.
        PreflightError: no cluster is up, or an extra is missing.
        UsageError: the name is taken.
    """
    wanted = loaded.spec.cluster
    named = ("cluster", "provider") in loaded.origins
    cluster = choose(app, provider_name=wanted.provider if named else None, cluster_name=wanted.name)
    place = place_of(app, loaded, cluster)
    launcher = place.launcher
    spec = run_spec(loaded, place, flags)
    check_configuration(spec)
    check_dataset(spec, launcher)
    refuse_secrets(spec, launcher)
    launcher.preflight(spec)
    folder = RunFolder(path=app.home.run(spec.name))
    if folder.path.exists():
        raise UsageError(
            f"there is a run {spec.name!r} already",
            remedy=f"choose another --name, or go on with it: cloudrec train --resume {spec.name}",
        )
    if not decide(_planned(app, cluster, launcher, folder, spec)):
        return None
    with app.cluster_lock(cluster.title):
        app.provider(cluster.provider).access(cluster)  # it may have gone while the user was asked
        if is_kubernetes(place.access):
            guard_run(app, cluster, image=spec.image)
        folder = create_run(app.home.runs, spec)
        _tell_id(app, folder, launcher.submit(folder))
    return folder


def resume(
    app: AppContext, name: str, *, nproc_per_node: int | None = None, decide: Callable[[Launch], bool]
) -> RunFolder | None:
    """Go on with a run that was stopped or failed, from its newest committed checkpoint.

    Args:
        app: what every use case works with.
        name: the run's name.
        nproc_per_node: go on with so many processes a node, each step as large as before; None: as many.
        decide: is shown what would be launched.

    Raises:
        UsageError: there is no such run, it is alive, or it has finished.
        SpecError: so many processes cannot share a step evenly, or have no GPU each.
    """
    folder = RunFolder(path=app.home.run(name))
    spec = folder.spec()
    launcher = find_launcher(spec.launcher)
    cluster = choose(app, provider_name=spec.provider, cluster_name=spec.cluster)
    if nproc_per_node is not None:
        spec = _resized(spec, nproc_per_node)
        access = app.provider(cluster.provider).access(cluster)
        _processes(nproc_per_node, access, launcher)  # refuses too many
    launcher.preflight(spec)
    if not decide(_planned(app, cluster, launcher, folder, spec)):
        return None
    with app.cluster_lock(cluster.title):
        if nproc_per_node is not None and launcher.state(folder).state in _RESUMABLE:
            folder.write_spec(spec)
        _tell_id(app, folder, launcher.submit(folder))
    return folder


def _tell_id(app: AppContext, folder: RunFolder, handle: RunHandle) -> None:
    """Tell an id that the engine's own tools know, and `status`, `logs` and `stop` too."""
    if "://" in handle.id:
        app.report(f"run {folder.name} is {handle.id}")


def _resized(spec: RunSpec, nproc_per_node: int) -> RunSpec:
    """Return the spec for another number of processes, with as many samples a step over all of them."""
    resized = replace(spec, nproc_per_node=nproc_per_node)
    config = check_configuration(spec)
    if config is None or resized.world_size == spec.world_size:
        return resized
    samples = config["global_batch_size"] or config["batch_size"] * spec.world_size
    if samples % resized.world_size:
        raise SpecError(
            f"a step of run {spec.name!r} is {samples} samples, which {resized.world_size} processes "
            "cannot share evenly",
            remedy=f"go on with a number of processes that divides {samples}",
        )
    return replace(resized, trainer_flags=(*spec.trainer_flags, f"--global_batch_size={samples}"))


def _planned(
    app: AppContext, cluster: ClusterSpec, launcher: Launcher, folder: RunFolder, spec: RunSpec
) -> Launch:
    hourly_usd = _hourly_usd(app, cluster) * spec.nnodes
    return Launch(spec=spec, plan=launcher.dry_run(folder, spec), hourly_usd=hourly_usd)


def _hourly_usd(app: AppContext, cluster: ClusterSpec) -> float:
    """Return what one node costs; 0 where nobody knows."""
    offers = app.provider(cluster.provider).offers(cluster)
    return (offers[0].hourly_usd or 0.0) if offers else 0.0


class Place(NamedTuple):
    """Where a run goes."""

    cluster: ClusterSpec
    access: Access
    launcher: Launcher
    hourly_usd: float  # of one node
    image: str  # by digest; empty where none was pushed for the cluster
    details: Mapping[str, Any]  # the access's, with what the catalogue tells of its nodes


def place_of(app: AppContext, loaded: Loaded, cluster: ClusterSpec) -> Place:
    """Return where a run goes; UsageError when the launcher that is asked for does not work there."""
    access = app.provider(cluster.provider).access(cluster)
    launcher = find_launcher(loaded.spec.train.launcher or access.launchers[0])
    _refuse_unfit_launcher(launcher, access, cluster)
    offers = app.provider(cluster.provider).offers(cluster)
    details = {**access.details, **_room(offers, access.details)}
    return Place(cluster, access, launcher, _hourly_usd(app, cluster), image_for(app, access), details)


def _room(offers: Sequence[Offer], details: Mapping[str, Any]) -> dict[str, int]:
    """Return the cores and the memory of a cluster's GPU nodes, as the catalogue has them."""
    for offer in offers:
        if offer.gpus and offer.instance_type == details.get("instance_type"):
            return {"cpus": offer.vcpus, "memory_gib": int(offer.memory_gib)}
    return {}


def run_spec(
    loaded: Loaded,
    place: Place,
    flags: Sequence[str],
    *,
    name: str | None = None,
    command: Sequence[str] | None = None,
) -> RunSpec:
    """Return what is to be launched.

    Args:
        loaded: the spec, with where each value stood.
        place: where it goes.
        flags: more flags for the trainer.
        name: the run's name, in place of the spec's.
        command: the program of a rank, in place of the trainer: it has a configuration of its own.
    """
    cluster, access, launcher, hourly_usd, image, _ = place
    train = loaded.spec.train
    nodes = _nodes(train.nodes, access) if launcher.nodes_of_cluster else train.nodes or 1
    notices = str(access.details.get("notices", ""))
    return RunSpec(
        name=name or train.name or new_run_name(datetime.now(UTC)),
        cluster=cluster.title,
        provider=cluster.provider,
        launcher=launcher.name,
        nproc_per_node=_processes(train.nproc_per_node, access, launcher),
        nnodes=nodes,
        min_nodes=_fewest(train.min_nodes, nodes),
        max_restarts=train.max_restarts,
        trainer_config={} if command else trainer_config(loaded, launcher, notices=notices),
        trainer_flags=absolute_flags(flags) if launcher.reads_local_files else tuple(flags),
        trainer_command=tuple(command or default_trainer_command()),
        environment={**(access.environment if launcher.nodes_of_cluster else {}), **train.env},
        stop_grace_s=train.stop_grace_s,
        storage=access.storage,
        image=train.image or image,
        allow_tcp=train.allow_tcp,
        hourly_usd=hourly_usd * nodes,
        target=place.details,
        settings=train.settings,
        versions={"cloudrec": __version__, "python": platform.python_version()},
    )


def _nodes(asked: int | None, access: Access) -> int:
    if asked is not None and asked > access.nodes:
        raise SpecError(
            f"{asked} nodes are asked for; this cluster has {access.nodes}",
            remedy=f"ask for at most {access.nodes}, or converge the cluster: `cloudrec up --nodes {asked}`",
        )
    return asked or access.nodes


def _fewest(asked: int | None, nodes: int) -> int:
    if asked is not None and asked > nodes:
        raise SpecError(f"min_nodes is {asked}; the run has {nodes} nodes", remedy=f"ask for at most {nodes}")
    return asked or 0


def _refuse_unfit_launcher(launcher: Launcher, access: Access, cluster: ClusterSpec) -> None:
    if launcher.name not in access.launchers:
        raise UsageError(
            f"launcher {launcher.name!r} does not work on cluster {cluster.title!r}",
            remedy=f"choose one of: {', '.join(access.launchers)}",
        )


def _processes(asked: int | None, access: Access, launcher: Launcher) -> int:
    """Return the processes a node: one a GPU, or one on a CPU, where two would only share its cores."""
    if not launcher.nodes_of_cluster:
        return asked or 1
    if asked is not None and access.gpus_per_node and asked > access.gpus_per_node:
        raise SpecError(
            f"nproc_per_node is {asked}; a node of this cluster has {access.gpus_per_node} GPUs",
            remedy=f"ask for at most {access.gpus_per_node}",
        )
    return asked or access.gpus_per_node or 1
