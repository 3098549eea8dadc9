"""Checks before a job is queued: partition, account, size, and the programs on the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import NoCapacityError, PreflightError, UsageError
from cloudrec.launchers.base.runspec import is_own_trainer
from cloudrec.launchers.slurm.script import python_of
from cloudrec.launchers.slurm.settings import seconds_of
from cloudrec_contract.settings import flag_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.launchers.base.ssh.shell import Shell
    from cloudrec.launchers.slurm.settings import SlurmSettings
    from cloudrec.launchers.slurm.tools import Partition, Slurm

_SET_HERE = ("output_dir", "config")
_PROBE = (
    "import cloudrec.agent.engines.slurm, importlib.util as u, sys; "
    "sys.exit(0 if u.find_spec('trainer') else 3)"
)
_PYTHON_S = 120.0  # a Python on a shared file system may be slow to start


def refuse_flags(spec: RunSpec) -> None:
    """Raise UsageError if the user sets a trainer flag that cloudrec sets."""
    for flag in _SET_HERE:
        if flag_value(spec.trainer_flags, flag) is not None:
            raise UsageError(
                f"the trainer flag --{flag} is set by cloudrec: a run's files are in its own folder",
                remedy=f"leave --{flag} out",
            )


def refuse_secrets(spec: RunSpec, settings: SlurmSettings) -> None:
    """Raise UsageError if a run through a login node has secrets: ssh would have to send their values."""
    if settings.host and spec.secrets:
        raise UsageError(
            f"the secret {next(iter(spec.secrets))} is not sent to {settings.host}",
            remedy="set the variable in your environment on the cluster, and leave --secret out",
        )


def chosen(slurm: Slurm, settings: SlurmSettings) -> list[Partition]:
    """Return the job's partition, as one `Partition` for each kind of its nodes.

    Raises:
        PreflightError: Slurm is not installed, its controller does not answer, or the partition is down.
        UsageError: there is no such partition.
    """
    all_parts = slurm.partitions()
    parts = [
        part
        for part in all_parts
        if (part.name in settings.partition.split(",") if settings.partition else part.is_default)
    ]
    names = ", ".join(sorted({part.name for part in all_parts})) or "none"
    if not parts and settings.partition:
        raise UsageError(
            f"Slurm on {slurm.where} has no partition {settings.partition!r}",
            remedy=f"choose one with --partition: {names}",
        )
    if not parts:
        raise UsageError(
            f"Slurm on {slurm.where} has no default partition", remedy=f"name one with --partition: {names}"
        )
    if not any(part.is_up for part in parts):
        raise PreflightError(
            f"the partition {parts[0].name!r} is down and takes no jobs",
            remedy=f"choose another one with --partition: {names}",
        )
    return parts


def check_account(slurm: Slurm, settings: SlurmSettings, parts: Sequence[Partition]) -> None:
    """Check the account, if Slurm requires one. Without the setting, Slurm uses the user's default account.

    Raises:
        UsageError: the user may not use the account, or not in the partition.
    """
    rights = slurm.accounting.rights()
    if rights is None:
        return
    names = ", ".join(sorted({each.account for each in rights.associations}))
    if not names:
        raise UsageError(
            f"{rights.user} has no account at Slurm on {slurm.where}, which takes no jobs without one",
            remedy=f"have its administrators add one: `sacctmgr add user {rights.user} account=NAME`",
        )
    wanted = settings.account.lower()  # Slurm ignores case
    places = {each.partition for each in rights.associations if each.account.lower() == wanted}
    if wanted and not places:
        raise UsageError(
            f"{rights.user} may not use the account {settings.account!r} of Slurm on {slurm.where}",
            remedy=f"choose one with --account: {names}",
        )
    if wanted and not places & {"", *(part.name for part in parts)}:
        raise UsageError(
            f"{rights.user} may not use the account {settings.account!r} in partition {parts[0].name!r}",
            remedy=f"name a partition where it is open, with --partition: {', '.join(sorted(places))}",
        )


def gpus_of(spec: RunSpec, settings: SlurmSettings, parts: Sequence[Partition]) -> int:
    """Return the GPUs to request for each node: the setting, else one a process if the partition has any."""
    if settings.gpus_per_node is not None:
        return settings.gpus_per_node
    return spec.nproc_per_node if any(part.gpus for part in parts) else 0


def check_size(spec: RunSpec, settings: SlurmSettings, parts: Sequence[Partition], gpus: int) -> None:
    """Check that the partition can run a job of this size.

    Raises:
        NoCapacityError: it has fewer nodes, GPUs or cores than the job requests.
        UsageError: the time is above its limit, or there are more processes than requested GPUs.
    """
    name = parts[0].name
    if gpus and spec.nproc_per_node > gpus:
        raise UsageError(
            f"nproc_per_node is {spec.nproc_per_node}, and train.settings.gpus_per_node {gpus}",
            remedy=f"request at most {gpus} processes, or more GPUs",
        )
    limit = max(parts, key=lambda part: part.limit_s)
    if settings.time_limit and seconds_of(settings.time_limit) > limit.limit_s:
        raise UsageError(
            f"the time limit {settings.time_limit} is above the one of partition {name!r}: {limit.limit}",
            remedy=f"request at most {limit.limit} with --time-limit, or name another partition",
        )
    cpus = settings.cpus_per_node or spec.nproc_per_node
    fitting = [part for part in parts if part.gpus >= gpus and part.cpus >= cpus]
    nodes, wanted = sum(part.nodes for part in fitting), spec.fewest_nodes
    if nodes < wanted:
        has = "; ".join(
            f"{part.nodes} nodes with {part.gpus} GPUs and {part.cpus} cores each" for part in parts
        )
        requested = f"{wanted} nodes with {gpus} GPUs and {cpus} cores each"
        raise NoCapacityError(
            f"the run needs {requested}; partition {name!r} has {has}",
            remedy="request fewer (--nodes, --nproc-per-node, train.settings), or name another partition",
        )


def check_programs(shell: Shell, spec: RunSpec, settings: SlurmSettings) -> None:
    """Raise PreflightError if the nodes' Python has no cloudrec, or Slurm lacks the container plug-in."""
    if settings.container_image:
        if settings.container_runtime == "pyxis":
            _check_pyxis(shell)
        return
    if not (settings.host or settings.python) or not is_own_trainer(spec.trainer_command):
        return
    # Only the login node is tested: the nodes must see the same Python on a shared file system.
    python = python_of(settings)
    done = shell.run([python, "-c", _PROBE], timeout_s=_PYTHON_S)
    if done.code:
        reason = done.err.splitlines()[-1] if done.err else "the trainer is not installed there"
        raise PreflightError(
            f"{python} on {shell.host or 'this machine'} cannot run cloudrec and the trainer: {reason}",
            remedy="name one that has them, on a file system that the nodes share: train.settings.python",
        )


def _check_pyxis(shell: Shell) -> None:
    if b"--container-image" not in shell.run(["srun", "--help"]).out:
        raise PreflightError(
            f"Slurm on {shell.host or 'this machine'} has no pyxis: srun does not know --container-image",
            remedy="use train.settings.container_runtime=apptainer, or no container_image",
        )
