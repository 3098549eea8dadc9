"""One launch of a run as a Ray job: the files that are sent with it, and the command on the head."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.util
import json
import math
import os
import shlex
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cloudrec.errors import PreflightError, SpecError, StorageError
from cloudrec.launchers.ray.settings import JOB, RaySettings, working_dir_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudrec.launchers.base.runspec import RunSpec

FOLDER = ".cloudrec"  # for cloudrec's files, beside the user's in the working directory
_PYTHON = "python"  # the nodes' interpreter; this machine's path may not exist there
_SENT = ("cloudrec", "cloudrec_contract", "trainer")
_LAST_COPY_S = 5.0  # of the grace, for the agent's last uploads after the trainer has ended
_STOP_MARGIN_S = 20.0  # beyond the grace, for driver and agents, before Ray kills them
_NEVER_SENT = (".git", "__pycache__", "*.pyc", ".venv", "venv", "node_modules", ".mypy_cache", FOLDER)
_MB = 1e6


def submission_id(spec: RunSpec, launch: int) -> str:
    """Return the id of a launch's job. It is the same at every call, and differs from other runs' ids."""
    mark = hashlib.sha256(f"{spec.name} {spec.created} {spec.storage}".encode()).hexdigest()[:6]
    return f"cloudrec-{spec.name}-{launch}-{mark}"


def launch_document(spec: RunSpec, *, launch: int, gpus: int) -> dict[str, Any]:
    """Return the content of launch.json, which the driver on the head reads.

    Args:
        spec: the run.
        launch: the number of the launch.
        gpus: GPUs to request for each node.
    """
    settings = RaySettings.of(spec)
    return {
        "nodes": spec.nodes,
        "min_nodes": spec.fewest_nodes,
        "max_restarts": spec.max_restarts,
        "gpus": gpus,
        "cpus": settings.cpus_per_node or float(spec.nproc_per_node),
        "wait_s": settings.wait_s,
        "port": 0,
        "agent": [_PYTHON, "-P", "-m", "cloudrec.agent", "agent", "--", "torchrun", *_elastic(spec, launch)],
        "program": _program(spec),
        "environment": _environment(spec, launch=launch, gpus=gpus),
    }


def config_text(spec: RunSpec) -> str:
    """Return the text of the nodes' trainer.yaml."""
    grace_s = max(1.0, spec.stop_grace_s - _LAST_COPY_S)
    return yaml.safe_dump({"stop_grace_seconds": grace_s, **spec.trainer_config}, sort_keys=False)


def entrypoint(spec: RunSpec) -> str:
    """Return the command that Ray starts on the head."""
    python = RaySettings.of(spec).python
    return shlex.join([python, "-P", "-m", "cloudrec.agent", "drive", f"{FOLDER}/launch.json"])


def runtime_env(spec: RunSpec, folder: str) -> dict[str, Any]:
    """Return Ray's runtime environment of the job.

    Args:
        spec: the run.
        folder: the folder that `staged` has made.
    """
    settings = RaySettings.of(spec)
    wait_s = math.ceil(spec.stop_grace_s + _STOP_MARGIN_S)
    made: dict[str, Any] = {
        "working_dir": folder,
        "excludes": ["__pycache__"],
        "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(wait_s), "PYTHONUNBUFFERED": "1"},
    }
    if settings.send_code:
        made["py_modules"] = [_package(name) for name in _SENT]
    if required := requirements_of(settings):
        made["pip"] = list(required)
    return made


def requirements_of(settings: RaySettings) -> Sequence[str]:
    """Return the requirements that pip installs on each node; SpecError if their file cannot be read."""
    if not isinstance(settings.requirements, str):
        return settings.requirements
    path = Path(settings.requirements).expanduser()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SpecError(
            f"train.settings.requirements: cannot read {path}: {error.strerror}",
            remedy="name a requirements.txt, or give a list of requirements",
        ) from error
    return [line for line in (line.strip() for line in lines) if line and not line.startswith("#")]


@contextmanager
def staged(spec: RunSpec, *, launch: int, gpus: int) -> Iterator[str]:
    """Yield a temporary folder with the user's working directory and cloudrec's files, to be sent.

    Raises:
        PreflightError: it is larger than the limit.
    """
    settings = RaySettings.of(spec)
    source = working_dir_of(settings)
    with tempfile.TemporaryDirectory(prefix="cloudrec-ray-") as made:
        target = Path(made)
        for path in files_to_send(settings) if source else ():
            place = target / path.relative_to(source or path)
            place.parent.mkdir(parents=True, exist_ok=True)
            _copy(path, place)
        own = target / FOLDER
        own.mkdir()
        document = launch_document(spec, launch=launch, gpus=gpus)
        (own / "launch.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
        (own / "trainer.yaml").write_text(config_text(spec), encoding="utf-8")
        yield made


def files_to_send(settings: RaySettings) -> Sequence[Path]:
    """Return the files of the working directory to send; PreflightError if their sum exceeds the limit."""
    source = working_dir_of(settings)
    if source is None:
        return []
    unwanted = (*_NEVER_SENT, *settings.excludes)
    found: list[Path] = []
    sizes: dict[str, int] = {}
    for folder, folders, names in os.walk(source):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not _matches(here / name, source, unwanted))
        for path in (here / name for name in sorted(names)):
            if path.is_file() and not _matches(path, source, unwanted):
                found.append(path)
                top = path.relative_to(source).parts[0]
                sizes[top] = sizes.get(top, 0) + path.stat().st_size
    total, limit = sum(sizes.values()) / _MB, settings.working_dir_limit_mb
    if total > limit:
        largest = sorted(sizes.items(), key=lambda each: -each[1])[:3]
        names_and_sizes = ", ".join(f"{name} ({size / _MB:.1f} MB)" for name, size in largest)
        raise PreflightError(
            f"the working directory {source} has {total:.1f} MB to send; the limit is {limit:g} MB. "
            f"The largest in it: {names_and_sizes}",
            remedy="leave files out: --set 'train.settings.excludes=[\"*.parquet\"]', "
            "or raise train.settings.working_dir_limit_mb",
        )
    return found


def _matches(path: Path, source: Path, patterns: Sequence[str]) -> bool:
    """Return whether a pattern matches a path's name, or its path below the folder."""
    relative = path.relative_to(source).as_posix()
    plain = [pattern.strip("/") for pattern in patterns]
    return any(
        fnmatch.fnmatch(path.name, each) or fnmatch.fnmatch(relative, each) or relative == each
        for each in plain
    )


def _copy(path: Path, place: Path) -> None:
    try:
        shutil.copy2(path, place)
    except OSError as error:
        raise StorageError(f"cannot copy {path} to send it: {error.strerror}") from error


def _package(name: str) -> str:
    """Return the folder of a package, without importing it; PreflightError if it is not installed."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise PreflightError(
            f"the package {name!r} is not installed as a folder, so it cannot be sent to the cluster",
            remedy="install cloudrec again, or use nodes that have it: --set train.settings.send_code=false",
        )
    return str(next(iter(found.submodule_search_locations)))


def _elastic(spec: RunSpec, launch: int) -> tuple[str, ...]:
    # One node needs no rendezvous that others can reach.
    backend = "loopback" if spec.nodes == 1 else "c10d"
    return (
        *("--nnodes", spec.node_range),
        *("--nproc-per-node", str(spec.nproc_per_node)),
        *("--max-restarts", str(spec.max_restarts)),
        *("--rdzv-backend", backend, "--rdzv-id", f"{spec.name}-{launch}"),
    )


def _program(spec: RunSpec) -> list[str]:
    """Return the command that torchrun starts for each rank; the user's flags come last, and override."""
    command = list(spec.trainer_command)
    if command[0] == sys.executable:
        command[0] = _PYTHON
    return [
        *("--no-python", _PYTHON, "-P", "-m", "cloudrec.agent", "rank", "--", *command),
        *("--config", f"{FOLDER}/trainer.yaml", "--checkpoint_dir", spec.checkpoints),
        *spec.trainer_flags,
    ]


def _environment(spec: RunSpec, *, launch: int, gpus: int) -> dict[str, str]:
    return {
        **spec.environment,
        JOB: submission_id(spec, launch),
        "CLOUDREC_RUN": spec.name,
        "CLOUDREC_LAUNCH": str(launch),
        "CLOUDREC_RESULTS": spec.results,
        "CLOUDREC_GPUS": str(gpus),
        "CLOUDREC_ALLOW_TCP": "1",  # the user's cluster decides about its network
        "CLOUDREC_MAX_RESTARTS": str(spec.max_restarts),
        "CLOUDREC_GRACE_S": f"{spec.stop_grace_s:g}",
    }
