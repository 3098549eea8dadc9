"""The trainer's own configuration: its paths made absolute, and checked before anything is made for a run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cloudrec.errors import DataError, SpecError
from cloudrec.launch.outputs import flag_value
from cloudrec.launch.runspec import RunSpec, default_trainer_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.launch.base import Launcher
    from cloudrec.spec.load import Loaded

_BAD_CONFIGURATION = 64  # the trainer's exit code for it
_CHECK_TIMEOUT_S = 120
_PATHS = ("dataset_path", "checkpoint_dir", "sharding_plan")  # the trainer's keys that name places
_SECRET = re.compile(
    r"SECRET|PASSWORD|PASSWD|TOKEN|CREDENTIAL|ACCOUNT_KEY|API_KEY|CONNECTION_STRING", re.IGNORECASE
)
_NOTICES = "preemption_notices"


def trainer_config(loaded: Loaded, launcher: Launcher, *, notices: str) -> dict[str, Any]:
    """Return the trainer's section with paths made absolute: from the file, relative to the file's folder.

    Args:
        loaded: the spec, with where each value stood.
        launcher: where the trainer does not see this machine's files, paths are left as they are.
        notices: the cloud whose notices the trainer is to listen to, unless the spec says otherwise.
    """
    config = dict(loaded.spec.trainer)
    if notices and loaded.spec.cluster.capacity != "on-demand":
        config.setdefault(_NOTICES, [notices])
    if not launcher.reads_local_files:
        return config
    for key in _PATHS:
        value = config.get(key)
        if isinstance(value, str):
            from_file = loaded.origins.get(("trainer", key), "").startswith(f"{loaded.file} ")
            base = loaded.file.parent if from_file and loaded.file is not None else Path.cwd()
            config[key] = _absolute(value, base)
    return config


def absolute_flags(flags: Sequence[str]) -> tuple[str, ...]:
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


def check_configuration(spec: RunSpec) -> dict[str, Any] | None:
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


def refuse_secrets(spec: RunSpec, launcher: Launcher) -> None:
    """Refuse a variable that looks like a secret where it would stand in a manifest; SpecError."""
    if launcher.reads_local_files:
        return
    for name, value in spec.environment.items():
        if _SECRET.search(name) and value:
            raise SpecError(
                f"train.env.{name} looks like a secret, which would stand in a manifest for all to read",
                remedy="pods have an identity of their own for the cluster's storage; leave the variable out",
            )


def check_dataset(spec: RunSpec, launcher: Launcher) -> None:
    """Refuse a dataset that is not there, or that the trainer cannot see, before a run is made for it."""
    path = flag_value(spec.trainer_flags, "dataset_path") or spec.trainer_config.get("dataset_path")
    if not isinstance(path, str) or spec.trainer_command != default_trainer_command():
        return
    if not launcher.reads_local_files:
        _refuse_unseen(path, spec)
    elif "://" not in path and not Path(path).exists():
        raise DataError(
            f"there is no dataset at {path}",
            remedy="make one: `cloudrec data prepare SRC OUT`, and name it with --dataset",
        )


def _refuse_unseen(path: str, spec: RunSpec) -> None:
    """A path on this machine means nothing to a pod; an absolute one may be a volume of its own."""
    if path.startswith("/") and not Path(path).exists():
        return
    if "://" not in path or path.startswith("file://"):
        raise DataError(
            f"the dataset {path} is on this machine, which the nodes of cluster {spec.cluster!r} cannot see",
            remedy=f"`cloudrec data push {path} --cluster {spec.cluster}` tells the --dataset to use",
        )
