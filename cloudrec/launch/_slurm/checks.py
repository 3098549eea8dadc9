"""What can be told before a job is queued: whether the cluster has what it asks for, in its own figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import NoCapacityError, PreflightError, UsageError
from cloudrec.launch._slurm.script import python_of
from cloudrec.launch._slurm.settings import seconds_of
from cloudrec.launch.outputs import flag_value
from cloudrec.launch.runspec import default_trainer_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.launch._slurm.settings import SlurmSettings
    from cloudrec.launch._slurm.shell import Shell
    from cloudrec.launch._slurm.tools import Partition, Slurm
    from cloudrec.launch.runspec import RunSpec

_SET_HERE = ("output_dir", "config")
_PROBE = "import cloudrec.pod.slurm, importlib.util as u, sys; sys.exit(0 if u.find_spec('trainer') else 3)"
_PYTHON_S = 120.0  # a Python on a shared file system may be slow to start


def refuse_flags(spec: RunSpec) -> None:
    """Refuse flags of the trainer that are set by cloudrec."""
    for flag in _SET_HERE:
        if flag_value(spec.trainer_flags, flag) is not None:
            raise UsageError(
                f"the trainer flag --{flag} is set by cloudrec: a run's files are in its own folder",
                remedy=f"leave --{flag} out",
            )


def chosen(slurm: Slurm, settings: SlurmSettings) -> list[Partition]:
    """Return the partition that a job goes to, in parts whose nodes are alike.

    Raises:
        PreflightError: Slurm is not there, or its controller does not answer.
        UsageError: there is no such partition, or it takes no jobs.
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
            f"the partition {parts[0].name!r} is down, and takes no jobs",
            remedy=f"choose another one with --partition: {names}",
        )
    return parts


def check_account(slurm: Slurm, settings: SlurmSettings, parts: Sequence[Partition]) -> None:
    """Refuse an account that this user may not use, where Slurm asks; who names none has a default one.

    Raises:
        UsageError: there is no such account for the user, or not in the partition.
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
    wanted = settings.account.lower()  # Slurm does not tell cases apart
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
    """Return the GPUs that each node is asked for: one a process, where the partition's nodes have any."""
    if settings.gpus_per_node is not None:
        return settings.gpus_per_node
    return spec.nproc_per_node if any(part.gpus for part in parts) else 0


def check_size(spec: RunSpec, settings: SlurmSettings, parts: Sequence[Partition], gpus: int) -> None:
    """Refuse what the partition cannot give, and say what it has.

    Raises:
        NoCapacityError: it has fewer nodes, GPUs or cores than are asked for.
        UsageError: the time is above its limit, or processes outnumber the GPUs that are asked for.
    """
    name = parts[0].name
    if gpus and spec.nproc_per_node > gpus:
        raise UsageError(
            f"nproc_per_node is {spec.nproc_per_node}, and train.settings.gpus_per_node {gpus}",
            remedy=f"ask for at most {gpus} processes, or for more GPUs",
        )
    limit = max(parts, key=lambda part: part.limit_s)
    if settings.time_limit and seconds_of(settings.time_limit) > limit.limit_s:
        raise UsageError(
            f"the time limit {settings.time_limit} is above the one of partition {name!r}: {limit.limit}",
            remedy=f"ask for at most {limit.limit} with --time-limit, or name another partition",
        )
    cpus = settings.cpus_per_node or spec.nproc_per_node
    fitting = [part for part in parts if part.gpus >= gpus and part.cpus >= cpus]
    nodes, wanted = sum(part.nodes for part in fitting), spec.min_nodes or spec.nnodes
    if nodes < wanted:
        has = "; ".join(
            f"{part.nodes} nodes with {part.gpus} GPUs and {part.cpus} cores each" for part in parts
        )
        asked = f"{wanted} nodes with {gpus} GPUs and {cpus} cores each"
        raise NoCapacityError(
            f"{asked} are asked for; partition {name!r} has {has}",
            remedy="ask for fewer (--nodes, --nproc-per-node, train.settings), or name another partition",
        )


def check_programs(shell: Shell, spec: RunSpec, settings: SlurmSettings) -> None:
    """Refuse a login node without our Python, and a Slurm without the container's plug-in."""
    if settings.container_image:
        if settings.container_runtime == "pyxis":
            _check_pyxis(shell)
        return
    if not (settings.host or settings.python) or spec.trainer_command != default_trainer_command():
        return
    python = python_of(settings)
    done = shell.run([python, "-c", _PROBE], timeout_s=_PYTHON_S)
    if done.code:
        said = done.err.splitlines()[-1] if done.err else "the trainer is not installed there"
        raise PreflightError(
            f"{python} on {shell.host or 'this machine'} cannot run cloudrec and the trainer: {said}",
            remedy="name one that has them, on a file system that the nodes share: train.settings.python",
        )


def _check_pyxis(shell: Shell) -> None:
    if b"--container-image" not in shell.run(["srun", "--help"]).out:
        raise PreflightError(
            f"Slurm on {shell.host or 'this machine'} has no pyxis: srun does not know --container-image",
            remedy="use train.settings.container_runtime=apptainer, or no container_image",
        )
