"""What is done before torchrun starts: folders, variables of the transport, the dataset, the node's check."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError
from cloudrec.home import make_private
from cloudrec.launch import _tether
from cloudrec.launch.place import is_remote, open_place
from cloudrec.pod import stage
from cloudrec.pod.settings import RUN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.pod.command import Command
    from cloudrec.pod.settings import PodSettings

_SHELLS = ("/bin/bash", "/bin/sh")
_SOURCE_S = 60.0


def make_folders(settings: PodSettings) -> None:
    """Make the folders that this pod writes to; StorageError when they cannot be."""
    make_private(settings.folder.logs)
    make_private(settings.data)


def rank_environment(settings: PodSettings) -> dict[str, str]:
    """Return what torchrun and the ranks need on top of the pod's own environment."""
    return {
        _tether.PARENT_PID: str(os.getpid()),
        RUN_FOLDER: str(settings.folder.path),
        # torch 2.13's agent of rank 0 tells a node that comes later nothing of the store that it shares
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        # how long torchrun waits for ranks that it has told to end; some may hang for want of a lost peer
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(max(int(settings.grace_s) - 5, 5)),
        "PYTHONUNBUFFERED": "1",  # a log that is followed, and one that a killed process leaves, is whole
        "TORCH_CPP_LOG_LEVEL": os.environ.get(
            "TORCH_CPP_LOG_LEVEL", "ERROR"
        ),  # its stacks tell people nothing
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def source_profile(path: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a script of the transport sets or changes.

    Raises:
        PreflightError: it is not there, or fails.
    """
    shell = next((each for each in _SHELLS if os.access(each, os.X_OK)), None)
    if shell is None or not os.access(path, os.R_OK):
        raise PreflightError(
            f"the transport's script {path} is not there",
            remedy="see whether the plug-in's installer has run on this node",
        )
    script = '. "$1" >&2 && env -0'
    done = subprocess.run(
        [shell, "-c", script, "profile", path],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SOURCE_S,
        check=False,
    )
    if done.returncode:
        words = " ".join(done.stderr.decode(errors="replace").split())[-300:]
        raise PreflightError(f"the transport's script {path} failed: {words or done.returncode}")
    pairs = (line.partition("=") for line in done.stdout.decode(errors="replace").split("\0") if line)
    ignored = ("_", "SHLVL", "PWD", "OLDPWD")
    return {name: value for name, _, value in pairs if name not in ignored and environment.get(name) != value}


def point_to_data(command: Command, settings: PodSettings, say: Callable[[str], None]) -> Command:
    """Bring the dataset to this node where it is in an object store; otherwise change nothing.

    Raises:
        DataError: it is not there, or damaged.
        PreflightError: the disk is too small.
        StorageError: the store refuses.
    """
    uri = command.setting("dataset_path")
    if not uri or not is_remote(uri):
        return command
    folder = stage.stage(open_place(uri), settings.data, say=say)
    return command.with_setting("dataset_path", str(folder))
