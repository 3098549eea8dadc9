"""The trainer's configuration: absolute paths, and the checks before a run is created."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cloudrec.errors import DataError, SpecError
from cloudrec.launchers.base.runspec import RunSpec, default_trainer_command, is_own_trainer
from cloudrec_contract import exit_codes
from cloudrec_contract.interval import STEADY_UPTIME_S
from cloudrec_contract.settings import (
    PATHS,
    SettingsError,
    TrainerSettings,
    underscored,
    underscored_keys,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.launchers.base.protocol import Launcher
    from cloudrec.spec.load import Loaded

_CHECK_TIMEOUT_S = 120
_NOTICES = "preemption_notices"
_UPTIME = "machine_uptime_hours"
_LOADER = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*$")  # MODULE:FACTORY


def trainer_config(
    loaded: Loaded, launcher: Launcher, *, notices: str, is_steady: bool = False
) -> dict[str, Any]:
    """Return the trainer's section with paths made absolute: from the file, relative to the file's folder.

    Args:
        loaded: the specification with the origin of each value.
        launcher: the launcher; if its trainer does not see this machine's files, paths are not changed.
        notices: the cloud whose preemption notices the trainer watches, unless the specification sets it.
        is_steady: whether no node is ever taken back, so that `auto` saves less often.
    """
    config = underscored_keys(loaded.spec.trainer)
    if notices and loaded.spec.cluster.capacity != "on-demand":
        config.setdefault(_NOTICES, [notices])
    if is_steady:
        config.setdefault(_UPTIME, STEADY_UPTIME_S / 3600)
    if not launcher.reads_local_files:
        return config
    for key, value in loaded.spec.trainer.items():
        name = underscored(key)
        if name in PATHS and isinstance(value, str):
            from_file = loaded.origins.get(("trainer", key), "").startswith(f"{loaded.file} ")
            base = loaded.file.parent if from_file and loaded.file is not None else Path.cwd()
            config[name] = _absolute(value, base)
    return config


def absolute_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Make the paths among flags absolute, so that a run can be resumed from any folder."""
    done: list[str] = []
    previous = ""
    for flag in flags:
        key, equals, value = flag.partition("=")
        if _name(previous) in PATHS:
            done.append(_absolute(flag, Path.cwd()))
        elif equals and _name(key) in PATHS:
            done.append(f"{key}={_absolute(value, Path.cwd())}")
        else:
            done.append(flag)
        previous = flag
    return tuple(done)


def _name(flag: str) -> str:
    return underscored(flag)[2:] if flag.startswith("--") else ""


def _absolute(path: str, base: Path) -> str:
    return path if "://" in path else str((base / Path(path).expanduser()).absolute())


def check_configuration(spec: RunSpec) -> TrainerSettings | None:
    """Let the trainer check and resolve its settings, before a run is created.

    Returns None if the trainer is another program, which has no such check.

    Raises:
        SpecError: the trainer refuses its configuration, or prints no settings.
    """
    if not is_own_trainer(spec.trainer_command):
        return None
    return resolved_settings(spec.trainer_config, spec.trainer_flags)


def resolved_settings(config: Mapping[str, Any], flags: Sequence[str]) -> TrainerSettings:
    """Return the trainer's settings with its defaults; it needs no torch for that.

    Raises:
        SpecError: the trainer refuses its configuration, or prints no settings.
    """
    with tempfile.TemporaryDirectory(prefix="cloudrec-") as folder:
        path = Path(folder) / "trainer.yaml"
        path.write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
        command = [*default_trainer_command(), "--check_config", "--config", str(path), *flags]
        checked = subprocess.run(
            command, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_S, check=False
        )
    if checked.returncode == 0:
        return _read(checked.stdout)
    output = checked.stderr.strip().replace(f"{path}: ", "").removeprefix("error: ")
    message, _, remedy = output.partition("\nremedy: ")
    if checked.returncode == exit_codes.BAD_CONFIG:
        raise SpecError(f"the trainer refuses its configuration: {message}", remedy=remedy or None)
    raise SpecError(f"the trainer could not check its configuration: {output}")


def _read(text: str) -> TrainerSettings:
    try:
        return TrainerSettings.from_json(text)
    except SettingsError as error:
        raise SpecError(f"the trainer printed no settings with --check_config: {error}") from error


def check_dataset(spec: RunSpec, launcher: Launcher) -> None:
    """Refuse a dataset that does not exist, or that the trainer cannot read, before a run is created."""
    path = spec.trainer.dataset_path
    if not path or not is_own_trainer(spec.trainer_command):
        return
    if not launcher.reads_local_files:
        _refuse_unseen(path, spec)
    elif "://" not in path and not Path(path).exists():
        loader = _LOADER.search(path)
        hint = f"; for a loader in Python: cloudrec train -- --dataset {loader[0]}" if loader else ""
        raise DataError(
            f"there is no dataset at {path}",
            remedy=f"make one: `cloudrec data prepare SRC OUT`, and name it with --dataset{hint}",
        )


def check_init_from(spec: RunSpec, launcher: Launcher) -> None:
    """Refuse an earlier model that is not there, or that nodes cannot read, before a run is created."""
    path = spec.trainer.init_from
    if not path or not is_own_trainer(spec.trainer_command):
        return
    if launcher.reads_local_files:
        if "://" not in path and not Path(path).exists():
            raise DataError(
                f"there is no model at {path}",
                remedy="--init_from takes the checkpoints of a run, RUN/checkpoints, or an export's folder",
            )
    elif _is_unseen(path):
        raise DataError(
            f"the model {path} of --init_from is on this machine, where the nodes of cluster "
            f"{spec.cluster!r} cannot read it",
            remedy="copy it to the cluster's storage, and give its URI",
        )


def _is_unseen(path: str) -> bool:
    """Whether a path is on this machine, where pods cannot read it; an absolute one may be a pod's volume."""
    if path.startswith("/") and not Path(path).exists():
        return False
    return "://" not in path or path.startswith("file://")


def _refuse_unseen(path: str, spec: RunSpec) -> None:
    if _is_unseen(path):
        raise DataError(
            f"the dataset {path} is on this machine, where the nodes of cluster {spec.cluster!r} cannot "
            f"read it",
            remedy=f"`cloudrec data push {path} --cluster {spec.cluster}` prints the --dataset to use",
        )
