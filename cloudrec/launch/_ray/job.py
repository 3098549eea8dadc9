"""One launch of a run as a Ray job: what is sent along, and what is started on the head."""

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
from cloudrec.launch._ray.settings import JOB, RaySettings, working_dir_of
from cloudrec.launch.outputs import flag_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudrec.launch.runspec import RunSpec

FOLDER = ".cloudrec"  # of what is sent: our own files, beside the user's
_PYTHON = "python"  # of the nodes, whatever ours is called
_LAST_WORDS_S = 5.0  # of the grace, for what an agent keeps once the trainer has ended
_STOP_MARGIN_S = 20.0  # what driver and agents may need beyond the grace before Ray kills them
_NEVER_SENT = (".git", "__pycache__", "*.pyc", ".venv", "venv", "node_modules", ".mypy_cache", FOLDER)
_MB = 1e6


def submission_id(spec: RunSpec, launch: int) -> str:
    """Return the id of a launch's job: the same whenever it is asked for, and no other run's."""
    mark = hashlib.sha256(f"{spec.name} {spec.created} {spec.storage}".encode()).hexdigest()[:6]
    return f"cloudrec-{spec.name}-{launch}-{mark}"


def results_of(spec: RunSpec) -> str:
    """Return the URI of the folder, seen by every node, that holds what the run leaves."""
    return f"{spec.storage.rstrip('/')}/runs/{spec.name}"


def launch_document(spec: RunSpec, *, launch: int, gpus: int) -> dict[str, Any]:
    """Return what the driver on the head is to start.

    Args:
        spec: the run.
        launch: which launch of it.
        gpus: GPUs that each node is to have.
    """
    settings = RaySettings.of(spec)
    return {
        "nodes": spec.nnodes,
        "min_nodes": spec.min_nodes or spec.nnodes,
        "max_restarts": spec.max_restarts,
        "gpus": gpus,
        "cpus": settings.cpus_per_node or float(spec.nproc_per_node),
        "wait_s": settings.wait_s,
        "port": 0,
        "agent": [_PYTHON, "-m", "cloudrec.pod", "agent", "--", "torchrun", *_elastic(spec, launch)],
        "program": _program(spec),
        "environment": _environment(spec, launch=launch, gpus=gpus),
    }


def config_text(spec: RunSpec) -> str:
    """Return the text of trainer.yaml as the nodes read it."""
    grace_s = max(1.0, spec.stop_grace_s - _LAST_WORDS_S)
    return yaml.safe_dump({"stop_grace_seconds": grace_s, **spec.trainer_config}, sort_keys=False)


def entrypoint(spec: RunSpec) -> str:
    """Return the command that Ray starts on the head."""
    python = RaySettings.of(spec).python
    return shlex.join([python, "-m", "cloudrec.pod", "drive", f"{FOLDER}/launch.json"])


def runtime_env(spec: RunSpec, folder: str) -> dict[str, Any]:
    """Return the environment that Ray makes on each node.

    Args:
        spec: the run.
        folder: what is sent along, as `staged` has made it.
    """
    settings = RaySettings.of(spec)
    wait_s = math.ceil(spec.stop_grace_s + _STOP_MARGIN_S)
    made: dict[str, Any] = {
        "working_dir": folder,
        "excludes": ["__pycache__"],
        "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(wait_s), "PYTHONUNBUFFERED": "1"},
    }
    if settings.send_code:
        made["py_modules"] = [_package("cloudrec"), _package("trainer")]
    if required := requirements_of(settings):
        made["pip"] = list(required)
    return made


def requirements_of(settings: RaySettings) -> Sequence[str]:
    """Return what pip is to install on each node; SpecError where the file that is named is not there."""
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
    """Make the folder that is sent along: the user's working directory, and our own files in it.

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
    """Return the files of the working directory that are sent; PreflightError when they are too large."""
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
        told = ", ".join(f"{name} ({size / _MB:.1f} MB)" for name, size in largest)
        raise PreflightError(
            f"the working directory {source} has {total:.1f} MB to send; the limit is {limit:g} MB. "
            f"The largest in it: {told}",
            remedy="leave files out: --set 'train.settings.excludes=[\"*.parquet\"]', "
            "or raise train.settings.working_dir_limit_mb",
        )
    return found


def _matches(path: Path, source: Path, patterns: Sequence[str]) -> bool:
    """Tell whether a path is left out: by its name, or by its path below the folder."""
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
    """Return the folder of a package of ours, which is found without importing it."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise PreflightError(f"the package {name!r} is not to be found, so it cannot be sent along")
    return str(next(iter(found.submodule_search_locations)))


def _elastic(spec: RunSpec, launch: int) -> tuple[str, ...]:
    fewest, most = spec.min_nodes or spec.nnodes, spec.nnodes
    # One node needs no meeting point that others can reach.
    backend = "loopback" if most == 1 else "c10d"
    return (
        *("--nnodes", str(most) if fewest == most else f"{fewest}:{most}"),
        *("--nproc-per-node", str(spec.nproc_per_node)),
        *("--max-restarts", str(spec.max_restarts)),
        *("--rdzv-backend", backend, "--rdzv-id", f"{spec.name}-{launch}"),
    )


def _program(spec: RunSpec) -> list[str]:
    """Return what torchrun starts for each rank; what the user says comes last, and wins."""
    command = list(spec.trainer_command)
    if command[0] == sys.executable:
        command[0] = _PYTHON
    named = flag_value(spec.trainer_flags, "checkpoint_dir") or spec.trainer_config.get("checkpoint_dir")
    checkpoints = () if named else ("--checkpoint_dir", f"{results_of(spec)}/checkpoints")
    return [
        *("--no-python", _PYTHON, "-m", "cloudrec.pod", "rank", "--", *command),
        *("--config", f"{FOLDER}/trainer.yaml", *checkpoints),
        *spec.trainer_flags,
    ]


def _environment(spec: RunSpec, *, launch: int, gpus: int) -> dict[str, str]:
    return {
        **spec.environment,
        JOB: submission_id(spec, launch),
        "CLOUDREC_RUN": spec.name,
        "CLOUDREC_LAUNCH": str(launch),
        "CLOUDREC_RESULTS": results_of(spec),
        "CLOUDREC_GPUS": str(gpus),
        "CLOUDREC_ALLOW_TCP": "1",  # which network there is, is the cluster's matter
        "CLOUDREC_MAX_RESTARTS": str(spec.max_restarts),
        "CLOUDREC_GRACE_S": f"{spec.stop_grace_s:g}",
    }
