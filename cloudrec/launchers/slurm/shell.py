"""Runs Slurm's programs on this machine, or on a login node by ssh."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.launchers.base.ssh.shell import NOT_FOUND, TIMEOUT_S, Done, ShellUnreachableError, SshShell, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.launchers.base.ssh.shell import Shell
    from cloudrec.launchers.slurm.settings import SlurmSettings

_SLURMS = ("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue")


@dataclass(frozen=True, kw_only=True)
class LocalShell:
    """This machine, which is a login node itself."""

    host: str = ""

    def run(self, words: Sequence[str], *, given: bytes = b"", timeout_s: float = TIMEOUT_S) -> Done:
        """Run a program on this machine."""
        if shutil.which(words[0]) is None:
            return Done(code=NOT_FOUND, out=b"", err=f"{words[0]}: not found")
        settings = os.environ.get("SLURM_CONF")
        if words[0] in _SLURMS and settings and not Path(settings).exists():
            # Slurm's programs would try to read it for a minute, without any output.
            raise ShellUnreachableError(
                f"SLURM_CONF names {settings}, which does not exist",
                remedy="name the cluster's slurm.conf, or unset SLURM_CONF to have Slurm's tools find it",
            )
        return run(words, given=given, timeout_s=timeout_s, what=words[0])


def shell_of(settings: SlurmSettings) -> Shell:
    """Return the shell for Slurm's programs: the login node of the settings, or this machine."""
    if settings.host:
        return SshShell(host=settings.host, config=settings.ssh_config)
    return LocalShell()
