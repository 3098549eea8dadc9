"""Commands on the node of a rank, as another step of the run's job."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

from cloudrec.errors import PreflightError, UsageError
from cloudrec.launchers.base.attach import check_rank
from cloudrec.launchers.base.ledger import last_launch
from cloudrec.launchers.slurm.address import JobAddress
from cloudrec.launchers.slurm.settings import SlurmSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.launchers.base.run_folder import RunFolder


def execute(run: RunFolder, command: Sequence[str], *, rank: int, stdin: bool, terminal: bool) -> int:
    """Run a command on a rank's node; see `RunsCommands.execute`."""
    spec = run.spec()
    check_rank(spec, rank)
    events = run.ledger.read()
    jobs = [
        str(event.details["job"])
        for event in events
        if event.event == "started" and event.launch == last_launch(events) and "job" in event.details
    ]
    if not jobs:
        raise UsageError(
            f"run {run.name} has no job yet", remedy=f"`cloudrec status {run.name}` shows its state"
        )
    job = JobAddress.parse(jobs[-1]).job
    settings = SlurmSettings.of(spec.settings)
    words = step(job, command, node=rank // spec.nproc_per_node, terminal=terminal)
    if settings.host:
        config = ["-F", settings.ssh_config] if settings.ssh_config else []
        words = ["ssh", *config, *(["-t"] if terminal else []), settings.host, shlex.join(words)]
    if shutil.which(words[0]) is None:
        raise PreflightError(
            f"this machine has no {words[0]}",
            remedy="run this on a login node, or name one with train.settings.host",
        )
    return subprocess.run(words, stdin=None if stdin else subprocess.DEVNULL, check=False).returncode


def step(job: int, command: Sequence[str], *, node: int, terminal: bool) -> list[str]:
    """Return the command that runs another step in a job, beside the trainer's.

    Args:
        job: the job's number.
        command: the command and its arguments.
        node: the node's place in the job, from 0.
        terminal: whether it gets a terminal.
    """
    # srun(1): with --overlap a step shares the resources of others; --relative counts the job's nodes from 0.
    words = ["srun", "--overlap", f"--jobid={job}", "--nodes=1", "--ntasks=1", f"--relative={node}"]
    return [*words, *(["--pty"] if terminal else []), *command]
