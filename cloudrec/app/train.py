"""The use case `train`: from a validated spec to a running trainer."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cloudrec import __version__
from cloudrec.app.choosing import choose
from cloudrec.errors import DataError, SpecError, UsageError
from cloudrec.launch import launcher as find_launcher
from cloudrec.launch.folder import RunFolder, create_run
from cloudrec.launch.ledger import RunState
from cloudrec.launch.outputs import flag_value
from cloudrec.launch.runspec import RunSpec, default_trainer_command, new_run_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.launch.base import Launcher, LaunchPlan
    from cloudrec.provider import Access
    from cloudrec.spec.load import Loaded
    from cloudrec.spec.models import ClusterSpec

_BAD_CONFIGURATION = 64  # the trainer's exit code for it
_CHECK_TIMEOUT_S = 120
_RESUMABLE = (RunState.FAILED, RunState.INTERRUPTED)
_PATHS = ("dataset_path", "checkpoint_dir", "sharding_plan")  # the trainer's keys that name places


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
    access = app.provider(cluster.provider).access(cluster)
    launcher = find_launcher(loaded.spec.train.launcher or access.launchers[0])
    spec = _run_spec(loaded, cluster, access, launcher, flags)
    launcher.preflight(spec)
    _check_configuration(spec)
    _check_dataset(spec)
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
        folder = create_run(app.home.runs, spec)
        launcher.submit(folder)
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
        _processes(nproc_per_node, app.provider(cluster.provider).access(cluster))  # refuses too many
    launcher.preflight(spec)
    if not decide(_planned(app, cluster, launcher, folder, spec)):
        return None
    with app.cluster_lock(cluster.title):
        if nproc_per_node is not None and launcher.state(folder).state in _RESUMABLE:
            folder.write_spec(spec)
        launcher.submit(folder)
    return folder


def _resized(spec: RunSpec, nproc_per_node: int) -> RunSpec:
    """Return the spec for another number of processes, with as many samples a step over all of them."""
    resized = replace(spec, nproc_per_node=nproc_per_node)
    config = _check_configuration(spec)
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
    offer = app.provider(cluster.provider).offers(cluster)[0]
    hourly_usd = (offer.hourly_usd or 0.0) * spec.nnodes
    return Launch(spec=spec, plan=launcher.dry_run(folder, spec), hourly_usd=hourly_usd)


def _run_spec(
    loaded: Loaded, cluster: ClusterSpec, access: Access, launcher: Launcher, flags: Sequence[str]
) -> RunSpec:
    train = loaded.spec.train
    _refuse_unfit_launcher(launcher, access, cluster)
    return RunSpec(
        name=train.name or new_run_name(datetime.now(UTC)),
        cluster=cluster.title,
        provider=cluster.provider,
        launcher=launcher.name,
        nproc_per_node=_processes(train.nproc_per_node, access),
        nnodes=access.nodes,
        max_restarts=train.max_restarts,
        trainer_config=_trainer_config(loaded),
        trainer_flags=_absolute_flags(flags),
        environment={**access.environment, **train.env},
        stop_grace_s=train.stop_grace_s,
        versions={"cloudrec": __version__, "python": platform.python_version()},
    )


def _refuse_unfit_launcher(launcher: Launcher, access: Access, cluster: ClusterSpec) -> None:
    if launcher.name not in access.launchers:
        raise UsageError(
            f"launcher {launcher.name!r} does not work on cluster {cluster.title!r}",
            remedy=f"choose one of: {', '.join(access.launchers)}",
        )


def _processes(asked: int | None, access: Access) -> int:
    """Return the processes a node: one a GPU, or one on a CPU, where two would only share its cores."""
    if asked is not None and access.gpus_per_node and asked > access.gpus_per_node:
        raise SpecError(
            f"nproc_per_node is {asked}; a node of this cluster has {access.gpus_per_node} GPUs",
            remedy=f"ask for at most {access.gpus_per_node}",
        )
    return asked or access.gpus_per_node or 1


def _trainer_config(loaded: Loaded) -> dict[str, Any]:
    """Return the trainer's section with paths made absolute: from the file, relative to the file's folder."""
    config = dict(loaded.spec.trainer)
    for key in _PATHS:
        value = config.get(key)
        if isinstance(value, str):
            from_file = loaded.origins.get(("trainer", key), "").startswith(f"{loaded.file} ")
            base = loaded.file.parent if from_file and loaded.file is not None else Path.cwd()
            config[key] = _absolute(value, base)
    return config


def _absolute_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Make the paths among flags absolute, so that a run is resumed from any folder."""
    done: list[str] = []
    previous = ""
    for flag in flags:
        key, equals, value = flag.partition("=")
        if _key(previous) in _PATHS and "=" not in previous:
            done.append(_absolute(flag, Path.cwd()))
        elif equals and _key(key) in _PATHS:
            done.append(f"{key}={_absolute(value, Path.cwd())}")
        else:
            done.append(flag)
        previous = flag
    return tuple(done)


def _key(flag: str) -> str:
    return flag[2:].replace("-", "_") if flag.startswith("--") else ""


def _absolute(path: str, base: Path) -> str:
    return path if "://" in path else str((base / Path(path).expanduser()).absolute())


def _check_configuration(spec: RunSpec) -> dict[str, Any] | None:
    """Have the trainer check its own configuration before anything is made; it needs no torch for that.

    Returns every setting with its value, None where the trainer is another program.
    """
    if spec.trainer_command != default_trainer_command():
        return None
    with tempfile.TemporaryDirectory(prefix="cloudrec-") as folder:
        config = Path(folder) / "trainer.yaml"
        config.write_text(yaml.safe_dump(dict(spec.trainer_config)), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "trainer",
            "--check_config",
            "--config",
            str(config),
            *spec.trainer_flags,
        ]
        checked = subprocess.run(
            command, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_S, check=False
        )
    if checked.returncode == 0:
        resolved: dict[str, Any] = json.loads(checked.stdout)
        return resolved
    said = checked.stderr.strip().replace(f"{config}: ", "").removeprefix("error: ")
    message, _, remedy = said.partition("\nremedy: ")
    if checked.returncode == _BAD_CONFIGURATION:
        raise SpecError(f"the trainer refuses its configuration: {message}", remedy=remedy or None)
    raise SpecError(f"the trainer could not check its configuration: {said}")


def _check_dataset(spec: RunSpec) -> None:
    """Refuse a dataset on this machine that is not there, before a run is made for it."""
    path = flag_value(spec.trainer_flags, "dataset_path") or spec.trainer_config.get("dataset_path")
    if not isinstance(path, str) or "://" in path or spec.trainer_command != default_trainer_command():
        return
    if not Path(path).exists():
        raise DataError(
            f"there is no dataset at {path}",
            remedy="make one: `cloudrec data prepare SRC OUT`, and name it with --dataset",
        )
