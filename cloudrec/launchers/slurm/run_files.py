"""The run's folder on the cluster's shared file system, reached directly or through a login node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from cloudrec.errors import StorageError
from cloudrec_contract.objectstore.ssh.shell import CONFIG

if TYPE_CHECKING:
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.launchers.base.ssh.shell import Shell
    from cloudrec.launchers.slurm.settings import SlurmSettings

_ROOT = 'echo "${CLOUDREC_HOME:-$HOME/.cloudrec}"'


def root_of(run: RunFolder, settings: SlurmSettings, shell: Shell) -> str:
    """Return the folder below which runs write: the setting, else CLOUDREC_HOME on the cluster."""
    if settings.folder:
        return settings.folder.rstrip("/")
    if not settings.host:
        return str(run.path.parent.parent)
    done = shell.run(["sh", "-c", _ROOT])
    root = done.text.strip()
    if done.code or not root.startswith("/"):
        raise StorageError(
            f"the home folder on {settings.host} is unknown: {done.err or root}",
            remedy="name the folder for runs: train.settings.folder",
        )
    return root


def seen_from_here(spec: RunSpec, settings: SlurmSettings, root: str) -> RunSpec:
    """Return the spec with its storage as this machine reaches it: a path, or an ssh:// URI."""
    storage = f"ssh://{settings.host}{quote(root)}" if settings.host else root
    config = {CONFIG: settings.ssh_config} if settings.ssh_config else {}
    return replace(spec, storage=storage, environment={**spec.environment, **config})
