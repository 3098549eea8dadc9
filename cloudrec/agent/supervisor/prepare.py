"""The steps before torchrun starts: folders, variables of the transport, and the dataset."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.agent.settings import RUN_FOLDER
from cloudrec.agent.upload import staging
from cloudrec.errors import PreflightError
from cloudrec.home import make_private
from cloudrec.kubernetes import topology
from cloudrec.launchers.base.results_store import is_remote, open_place
from cloudrec.launchers.local import ordered
from cloudrec.process import tether
from cloudrec_contract.settings import flag_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.agent.settings import PodSettings
    from cloudrec.agent.supervisor.command import TorchrunCommand

_SHELLS = ("/bin/bash", "/bin/sh")
_SOURCE_S = 60.0


def make_folders(settings: PodSettings) -> None:
    """Create the folders that this pod writes to; StorageError if that fails."""
    make_private(settings.folder.logs)
    make_private(settings.data)


def rank_environment(settings: PodSettings) -> dict[str, str]:
    """Return the variables for torchrun and the ranks, besides those of the pod."""
    return {
        tether.PARENT_PID: str(os.getpid()),
        RUN_FOLDER: str(settings.folder.path),
        # In torch 2.13, the agent of rank 0 does not pass its shared store to a node that joins later.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        # Seconds that torchrun waits for ranks to end after SIGTERM; some may hang because of a lost peer.
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(max(int(settings.grace_s) - 5, 5)),
        "PYTHONUNBUFFERED": "1",  # so that logs are complete at any time, also after a kill
        # Warnings of torch's C++ code come with long stack traces.
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def rank_key(settings: PodSettings, command: TorchrunCommand, say: Callable[[str], None]) -> dict[str, str]:
    """Return the variable with the key by which the rendezvous orders this node; none without a topology."""
    if not settings.topology:
        return {}
    try:
        places = topology.read(Path(settings.topology).read_text(encoding="utf-8"))
    except OSError:  # the table is optional: the launcher may not list nodes
        places = {}
    if settings.node not in places:
        say(f"the network's topology has no place for node {settings.node!r}: its ranks come last")
    host = command.own_endpoint().rpartition(":")[0] or settings.pod
    return {ordered.KEY: topology.key(places, settings.node, host)}


def source_profile(path: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a script of the transport sets or changes.

    Raises:
        PreflightError: the script does not exist, or fails.
    """
    shell = next((each for each in _SHELLS if os.access(each, os.X_OK)), None)
    if shell is None or not os.access(path, os.R_OK):
        raise PreflightError(
            f"the transport's script {path} does not exist",
            remedy="check that the plug-in's installer has run on this node",
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


def point_to_data(
    command: TorchrunCommand, settings: PodSettings, say: Callable[[str], None]
) -> TorchrunCommand:
    """Return the command with the path of the dataset on this node.

    A dataset in an object store is downloaded; for any other the command is returned unchanged.

    Raises:
        DataError: the dataset is missing or damaged.
        PreflightError: the disk is too small.
        StorageError: the store refuses.
    """
    uri = command.settings().dataset_path
    if not uri or not is_remote(uri):
        return command
    folder = staging.stage(open_place(uri), settings.data, say=say)
    return command.with_setting("dataset_path", str(folder))


def keep_near(command: TorchrunCommand, settings: PodSettings) -> TorchrunCommand:
    """Return the command with a folder of this node for copies of the checkpoints that go to a bucket.

    Ranks that are started again here read them there. What the user sets is kept; other programs than the
    trainer have no such setting.
    """
    flag = flag_value(command.trainer, "checkpoint_near_dir")
    is_set = flag is not None or "checkpoint_near_dir" in command.config()
    if is_set or not command.is_own_trainer or not is_remote(command.settings().checkpoint_dir):
        return command
    return command.with_setting("checkpoint_near_dir", str(settings.work / "near"))
