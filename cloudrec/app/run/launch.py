"""The use case `train`: from a validated spec to a running trainer."""

from __future__ import annotations

import platform
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from cloudrec import providers
from cloudrec.app.access import refuse_unreachable
from cloudrec.app.choosing import choose
from cloudrec.app.managed.check import refuse_wishes
from cloudrec.app.notices.awaiting import await_end
from cloudrec.app.notices.launching import notify_of, warn_of_silence
from cloudrec.app.reach.runs import image_for, refuse_ended, refuse_without_nodes
from cloudrec.app.readiness import report_missing
from cloudrec.app.run.data_tier import fill, plan_of, with_tier
from cloudrec.app.run.model_source import with_model_source
from cloudrec.app.run.pods_image import pods_image
from cloudrec.app.run.pushed_data import with_dataset
from cloudrec.app.run.regions import clusters_for, refuse_unequal
from cloudrec.app.run.trainer_config import (
    absolute_flags,
    check_configuration,
    check_dataset,
    check_init_from,
    trainer_config,
)
from cloudrec.app.run.user_script import user_script
from cloudrec.app.run.variables import check_secrets, passed_on, refuse_secret_settings, variables
from cloudrec.engine.cost import FREE, times
from cloudrec.errors import SpecError, UsageError
from cloudrec.launchers import launcher as find_launcher
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.results_store import require as require_store
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec, default_trainer_command, new_run_name
from cloudrec.launchers.base.script.prepare import keep_archive
from cloudrec.launchers.base.script_program import script_command
from cloudrec.observe.runs import find_run
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec.providers.base.protocol import OWNED
from cloudrec.providers.base.storage.tiers import LUSTRE
from cloudrec.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.app.run.user_script import PackedScript
    from cloudrec.engine.plan import PlannedData
    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.launchers.base.protocol import Launcher, LaunchPlan, RunHandle
    from cloudrec.process.ray_target import RayTarget
    from cloudrec.providers.base.access import Access
    from cloudrec.providers.base.protocol import Offer
    from cloudrec.providers.base.storage.tiers import DataChoice
    from cloudrec.spec.load import Loaded
    from cloudrec.spec.models import ClusterSpec

_SPOT = ("spot", "spot-first")  # the nodes that a cluster has later may be spot ones
_RESUMABLE = (RunState.FAILED, RunState.INTERRUPTED)


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """A run that is ready to be submitted: what a dry run prints is what a real one does."""

    spec: RunSpec
    plan: LaunchPlan
    hourly_usd: float | None
    data: PlannedData | None = None  # where the nodes read the dataset; None where no tier is chosen


def train(
    app: AppContext, loaded: Loaded, flags: Sequence[str], *, decide: Callable[[PreparedRun], bool]
) -> RunFolder | None:
    """Launch a new run; returns once it is in progress, or None where `decide` said to go no further.

    Args:
        app: what every use case works with.
        loaded: the spec, with where each value stood.
        flags: more flags for the trainer, or arguments of the script; passed verbatim.
        decide: is shown what would be launched.

    Raises:
        SpecError: the trainer refuses its configuration.
        PreflightError: no cluster is up, an extra is missing, or the nodes have no room for the dataset.
        UsageError: the name is taken.
    """
    cluster, *others = clusters_for(app, loaded)
    place, launcher = _checked_place(app, loaded, cluster)
    script = user_script(app, loaded, flags)
    spec_for = partial(run_spec, loaded, flags=() if script else flags, script=script)
    spec = spec_for(place)
    require_store(spec.storage)
    refuse_unreachable(app, cluster, place.access)
    first = with_dataset(app, spec, launcher)
    uri = first.trainer.dataset_path
    spec, data = _completed(app, loaded, place, first)
    warn_of_silence(app, loaded, cluster, launcher)
    elsewhere = [_elsewhere(app, loaded, other, first, spec_for=spec_for) for other in others]
    spec = replace(spec, elsewhere=tuple(each.spec.cluster for each in elsewhere))
    launcher.preflight(spec)
    folder = RunFolder(path=app.home.run(spec.name))
    if folder.path.exists():
        raise UsageError(
            f"a run {spec.name!r} exists already",
            remedy=f"choose another --name, or resume it: cloudrec train --resume {spec.name}",
        )
    prepared = _planned(app, cluster, launcher, folder, spec)
    if not decide(replace(prepared, data=plan_of(data) if data else None)):
        return None
    with _locked(app, [cluster, *others]):
        for each in (cluster, *others):
            app.provider(each.provider).access(each)  # it may have gone while the user was asked
        if data is not None and data.tier.name == LUSTRE:
            fill(app, cluster, spec, uri)
        _prepare_cluster(app, place, spec)
        for other in elsewhere:
            _prepare_cluster(app, other.place, other.spec)
        folder = create_run(app.home.runs, spec, [other.spec for other in elsewhere])
        if script:
            keep_archive(folder, script.archive.data)
        with passed_on(spec, launcher):
            _tell_id(app, folder, launcher.submit(folder))
    await_end(folder, spec)
    return folder


class _Elsewhere(NamedTuple):
    """A run in another cluster that it may move to."""

    place: RunTarget
    spec: RunSpec


def _checked_place(app: AppContext, loaded: Loaded, cluster: ClusterSpec) -> tuple[RunTarget, Launcher]:
    """Return where a run is launched, after the checks of the cluster."""
    app.provider(cluster.provider, complete=True)
    report_missing(app, cluster)
    place = place_of(app, loaded, cluster)
    refuse_without_nodes(cluster, place.access)
    refuse_wishes(cluster, place.access, loaded.spec.train.settings)
    return place, place.launcher


def _completed(
    app: AppContext, loaded: Loaded, place: RunTarget, spec: RunSpec
) -> tuple[RunSpec, DataChoice | None]:
    """Return the spec with the tier of its dataset and all settings, after the checks of the trainer."""
    cluster, launcher = place.cluster, place.launcher
    spec, data = with_tier(app, cluster, spec, place.access, launcher, wanted=loaded.spec.train.data_tier)
    spec = replace(spec, trainer_settings=check_configuration(spec))
    check_dataset(spec, launcher)
    check_init_from(spec, launcher)
    check_secrets(spec, launcher, app.environment)
    return spec, data


def _elsewhere(
    app: AppContext, loaded: Loaded, cluster: ClusterSpec, first: RunSpec, *, spec_for: Callable[..., RunSpec]
) -> _Elsewhere:
    """Return a run in another cluster, with the same name, program, dataset and storage as in the first one.

    Args:
        app: what every use case works with.
        loaded: the spec, with where each value stood.
        cluster: the other cluster.
        first: the run in the first cluster, before the tier of its dataset is chosen.
        spec_for: returns the run's spec for a place, see `run_spec`.
    """
    place, launcher = _checked_place(app, loaded, cluster)
    if place.target is None or not launcher.nodes_of_cluster:
        raise UsageError(
            f"launcher {launcher.name!r} cannot move a run to another region",
            remedy="leave --regions out, or use a launcher of Kubernetes",
        )
    spec = spec_for(place, name=first.name)
    refuse_unequal(first, spec)
    refuse_unreachable(app, cluster, place.access)
    uri = first.trainer.dataset_path
    if uri and not spec.trainer.dataset_path:
        spec = replace(spec, trainer_config={**spec.trainer_config, "dataset_path": uri})
    spec, _ = _completed(app, loaded, place, spec)
    spec = replace(spec, elsewhere=(first.cluster,))
    launcher.preflight(spec)
    return _Elsewhere(place, spec)


@contextmanager
def _locked(app: AppContext, clusters: Sequence[ClusterSpec]) -> Iterator[None]:
    """Lock clusters, always in the order of their names, so that two commands never wait for each other."""
    with ExitStack() as stack:
        for title in sorted(each.title for each in clusters):
            stack.enter_context(app.cluster_lock(title))
        yield


def _prepare_cluster(app: AppContext, place: RunTarget, spec: RunSpec) -> None:
    if isinstance(place.access, KubernetesAccess):
        from cloudrec.app.addons import prepare_run  # noqa: PLC0415 - with the client of the API

        prepare_run(app, place.cluster, place.access, image="" if spec.setup else spec.image)


def resume(
    app: AppContext, name: str, *, nproc_per_node: int | None = None, decide: Callable[[PreparedRun], bool]
) -> RunFolder | None:
    """Continue with a run that was stopped or failed, from its newest committed checkpoint.

    Args:
        app: what every use case works with.
        name: the run's name.
        nproc_per_node: continue with so many processes a node, each step as large as before; None: as many.
        decide: is shown what would be launched.

    Raises:
        PreflightError: the cluster is not up, or its end has passed.
        UsageError: there is no such run, it is alive, or it has finished.
        SpecError: so many processes cannot share a step evenly, or have no GPU each.
    """
    folder = find_run(app.home.runs, name)
    spec = folder.spec()
    launcher = find_launcher(spec.launcher)
    cluster = choose(app, provider_name=spec.provider, cluster_name=spec.cluster)
    app.provider(cluster.provider, complete=True)
    require_store(spec.storage)
    if launcher.nodes_of_cluster and spec.is_on_kubernetes:
        access = app.provider(cluster.provider).access(cluster)
        refuse_ended(app, cluster, access)
        refuse_without_nodes(cluster, access)
        refuse_unreachable(app, cluster, access)
    others = [choose(app, provider_name=spec.provider, cluster_name=title) for title in spec.elsewhere]
    for other in others:
        access = app.provider(other.provider).access(other)
        refuse_ended(app, other, access)
        refuse_unreachable(app, other, access)
    specs = [spec, *map(folder.spec_in, spec.elsewhere)]
    if nproc_per_node is not None:
        specs = [_resized(each, nproc_per_node) for each in specs]
        for each in (cluster, *others):
            access = app.provider(each.provider).access(each)
            _processes(nproc_per_node, access, launcher)  # refuses too many
    spec = specs[0]
    check_secrets(spec, launcher, app.environment)
    for other_spec in specs:
        launcher.preflight(other_spec)
    if not decide(_planned(app, cluster, launcher, folder, spec)):
        return None
    with _locked(app, [cluster, *others]):
        if nproc_per_node is not None and launcher.state(folder).state in _RESUMABLE:
            folder.write_spec(*specs)
        with passed_on(spec, launcher):
            _tell_id(app, folder, launcher.submit(folder))
    await_end(folder, spec)
    return folder


def _tell_id(app: AppContext, folder: RunFolder, handle: RunHandle) -> None:
    """Print an id that the engine's own tools know, and `status`, `logs` and `stop` too."""
    if "://" in handle.id:
        app.report(f"run {folder.name} is {handle.id}")


def _resized(spec: RunSpec, nproc_per_node: int) -> RunSpec:
    """Return the spec for another number of processes, with as many samples a step over all of them."""
    resized = replace(spec, nproc_per_node=nproc_per_node)
    settings = spec.trainer_settings or check_configuration(spec)
    samples = settings.samples_a_step(ranks=spec.world_size) if settings else None
    if settings is None or samples is None or resized.world_size == spec.world_size:
        return resized
    if samples % resized.world_size:
        raise SpecError(
            f"a step of run {spec.name!r} has {samples} samples, which {resized.world_size} processes "
            f"cannot share evenly",
            remedy=f"use a number of processes that divides {samples}",
        )
    return replace(
        resized,
        trainer_flags=(*spec.trainer_flags, f"--global_batch_size={samples}"),
        trainer_settings=settings.with_values(global_batch_size=samples),
    )


def _planned(
    app: AppContext, cluster: ClusterSpec, launcher: Launcher, folder: RunFolder, spec: RunSpec
) -> PreparedRun:
    offers = app.provider(cluster.provider).offers(cluster)
    hourly_usd = _hourly_usd(offers)
    if hourly_usd is None and offers and offers[0].capacity == OWNED:
        hourly_usd = FREE  # others pay for the nodes, run or no run
    plan = launcher.dry_run(folder, spec)
    return PreparedRun(spec=spec, plan=plan, hourly_usd=times(spec.nodes, hourly_usd))


def _hourly_usd(offers: Sequence[Offer]) -> float | None:
    """Return what one node costs; None where it is not known."""
    return offers[0].hourly_usd if offers else None


class RunTarget(NamedTuple):
    """Where a run goes."""

    cluster: ClusterSpec
    access: Access
    launcher: Launcher
    hourly_usd: float | None  # of one node; None where it is not known
    image: str  # by digest; empty where none was pushed for the cluster
    target: ClusterTarget | RayTarget | None  # what spec.json keeps of the cluster


def place_of(app: AppContext, loaded: Loaded, cluster: ClusterSpec) -> RunTarget:
    """Return where a run goes.

    Raises:
        PreflightError: the cluster's end has passed.
        UsageError: the launcher that is asked for does not work there.
    """
    access = app.provider(cluster.provider).access(cluster)
    refuse_ended(app, cluster, access)
    launcher = find_launcher(loaded.spec.train.launcher or access.launchers[0])
    _refuse_unfit_launcher(launcher, access, cluster)
    offers = app.provider(cluster.provider).offers(cluster)
    image = image_for(app, access)
    return RunTarget(cluster, access, launcher, _hourly_usd(offers), image, _target(offers, access))


def _target(offers: Sequence[Offer], access: Access) -> ClusterTarget | RayTarget | None:
    """Return what spec.json keeps of a cluster, with the catalogue's cores and memory of its GPU nodes.

    The nodes of an adopted cluster were measured: no catalogue knows what their daemons leave.
    """
    if isinstance(access, KubernetesAccess) and not access.is_adopted:
        for offer in offers:
            if offer.gpus and offer.instance_type == access.target.instance_type:
                return replace(access.target, cpus=offer.vcpus, memory_gib=int(offer.memory_gib))
    return access.run_target()


def run_spec(
    loaded: Loaded,
    place: RunTarget,
    flags: Sequence[str],
    *,
    name: str | None = None,
    command: Sequence[str] | None = None,
    script: PackedScript | None = None,
) -> RunSpec:
    """Return what is to be launched.

    Args:
        loaded: the spec, with where each value stood.
        place: where it goes.
        flags: more flags for the trainer.
        name: the run's name, in place of the spec's.
        command: the program of a rank, in place of the trainer: it has its own configuration.
        script: the user's script, in place of the trainer.
    """
    cluster, access, launcher, hourly_usd, pushed, _ = place
    train = loaded.spec.train
    nodes = _nodes(train.nodes, access, cluster) if launcher.nodes_of_cluster else train.nodes or 1
    notices = _notices(cluster, access)
    config = {}
    if not command:
        steady = _is_steady(cluster, access)
        config = trainer_config(loaded, launcher, notices=notices, is_steady=steady)
        if not launcher.reads_local_files:
            config = with_model_source(config, flags, loaded)
    if script:
        config = script.config
    own = variables(loaded)
    refuse_secret_settings(config, [*(script.script.arguments if script else ()), *flags])
    image, setup = pods_image(loaded, cluster, access, launcher, pushed=pushed, config=config, flags=flags)
    return RunSpec(
        name=name
        or train.name
        or new_run_name(datetime.now(UTC), prefix=script.prefix if script else "dlrm"),
        cluster=cluster.title,
        provider=cluster.provider,
        launcher=launcher.name,
        nproc_per_node=_processes(train.nproc_per_node, access, launcher),
        nodes=nodes,
        min_nodes=_fewest(train.min_nodes, nodes),
        max_restarts=train.max_restarts,
        trainer_config=config,
        trainer_flags=absolute_flags(flags) if launcher.reads_local_files else tuple(flags),
        trainer_command=script_command() if script else tuple(command or default_trainer_command()),
        environment={**(access.environment if launcher.nodes_of_cluster else {}), **own},
        stop_grace_s=train.stop_grace_s,
        storage=access.storage,
        image=image,
        setup=setup,
        allow_tcp=train.allow_tcp,
        hourly_usd=times(nodes, hourly_usd),
        target=place.target,
        settings=train.settings,
        script=script.script if script else None,
        secrets={} if command else train.secrets,
        notify=notify_of(loaded, launcher),
        metrics_port=train.metrics_port or (0 if cluster.metrics == "off" else cluster.metrics_port),
        versions={"cloudrec": __version__, "python": platform.python_version()},
    )


def _is_steady(cluster: ClusterSpec, access: Access) -> bool:
    """Whether no node is ever taken back; of an adopted cluster's nodes that is not known."""
    if not isinstance(access, KubernetesAccess) or access.is_adopted or cluster.capacity in _SPOT:
        return False
    return not access.target.is_preempted


def _notices(cluster: ClusterSpec, access: Access) -> str:
    """Return the cloud whose notices of a preemption reach the nodes; empty if there are none."""
    if isinstance(access, KubernetesAccess):
        return access.target.notices
    facts = providers.facts(cluster.provider)
    return facts.notice.service if facts and facts.notice else ""


def _nodes(asked: int | None, access: Access, cluster: ClusterSpec) -> int:
    if asked is not None and asked > access.nodes:
        up = f"cloudrec up {cluster.provider} --cluster {cluster.title} --nodes {asked}"
        raise SpecError(
            f"{asked} nodes are asked for; this cluster has {access.nodes}",
            remedy=f"ask for at most {access.nodes}, or enlarge the cluster: `{up}`",
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
