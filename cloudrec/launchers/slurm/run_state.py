"""Derives the state of a run from its Slurm job and its agents' files. Pure functions: no call, no file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.protocol import RunStatus, Worker
from cloudrec_contract.exit_codes import STOPPED

if TYPE_CHECKING:
    from cloudrec.launchers.slurm.jobs import Job

_WAITS = ("PENDING", "CONFIGURING")
_REQUEUED = ("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
_WORKS = ("RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "SUSPENDED", "STOPPED")
_TAKEN = {
    "PREEMPTED": "another job took its nodes",
    "TIMEOUT": "its time was up",
    "CANCELLED": "it was cancelled by scancel",
    "DEADLINE": "its deadline has passed",
    "REVOKED": "another cluster has it now",
}
_BROKEN = {
    "NODE_FAIL": "one of its nodes failed",
    "BOOT_FAIL": "a node did not boot",
    "OUT_OF_MEMORY": "it was out of memory: ask for more with train.settings.memory_gib",
}
_REASONS = {
    "Resources": "its nodes are busy",
    "Priority": "jobs of higher priority come first",
    "BeginTime": "Slurm waits before it starts a requeued job again",
    "PartitionTimeLimit": "its time limit is above the partition's: stop it, and request less",
    "PartitionNodeLimit": "it requests more nodes than the partition allows: stop it, and request fewer",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "ReqNodeNotAvail": "nodes that it needs are down, or reserved",
    "AccountNotAllowed": "its account may not use the partition: stop it, and name another account",
    "InvalidAccount": "its account is not valid: stop it, and name another one",
    "InvalidQOS": "its QOS is not valid: stop it, and name another one",
    "JobHeldUser": "it is held: release it with scontrol",
    "JobHeldAdmin": "an administrator holds it",
    "launch failed requeued held": "it could not be started, and is held: see the nodes' slurmd.log",
}
_NO_OUTPUT = 53  # the "signal" with which slurmd reports that it could not open the job's output


@dataclass(frozen=True, kw_only=True)
class SlurmSnapshot:
    """The state of one launch, as read from Slurm and from the run's folder.

    Args:
        job: its job; None if Slurm has forgotten it.
        address: the job's address.
        stop_asked: whether `stop` has requested the end.
        finished: whether the trainer's summary has the status "finished".
        script_code: the exit code that the job's script recorded; None if it was killed.
        cause: the cause that a failed agent has recorded; empty if none has.
        checkpoint: a sentence about the newest checkpoint; empty if it was not read.
    """

    job: Job | None
    address: str = ""
    stop_asked: bool = False
    finished: bool = False
    script_code: int | None = None
    cause: str = ""
    checkpoint: str = ""


def judge(sight: SlurmSnapshot) -> RunStatus:
    """Return the run's status; the caller adds attempts and preemptions, which are in the ledger."""
    job = sight.job
    if job is None:
        state, cause = _without_job(sight)
        return RunStatus(state=state, cause=cause)
    state, cause = _state(job, sight)
    problem = (cause or "") if not state.is_final else ""
    worker = Worker(
        name=f"job {job.id}", node=job.nodes, state=job.state, restarts=job.restarts, problem=problem
    )
    return RunStatus(state=state, cause=cause, workers=(worker,))


def _state(job: Job, sight: SlurmSnapshot) -> tuple[RunState, str | None]:
    if job.state in _WAITS:
        reason = _REASONS.get(job.reason, job.reason)
        return (RunState.RESTARTING if job.restarts else RunState.PENDING), reason or None
    if job.state in _REQUEUED:
        return RunState.RESTARTING, "it was put back into the queue"
    if job.state in _WORKS:
        held = "Slurm has suspended it" if job.state in ("SUSPENDED", "STOPPED") else None
        return RunState.RUNNING, "stopped on request: it is still ending" if sight.stop_asked else held
    return _ended(job, sight)


def _ended(job: Job, sight: SlurmSnapshot) -> tuple[RunState, str | None]:
    if job.state == "COMPLETED":
        return _completed(sight)
    has_stopped = STOPPED in (job.exit_code, sight.script_code)
    cause = _ended_by_slurm(job) or ("asked to end" if has_stopped else None)
    if sight.stop_asked or cause:
        return RunState.INTERRUPTED, _stopped(sight, "stopped on request" if sight.stop_asked else str(cause))
    return RunState.FAILED, _why_failed(job, sight)


def _ended_by_slurm(job: Job) -> str:
    """Return why Slurm or a user ended the job; empty if neither did."""
    cause = _TAKEN.get(job.state, "")
    if job.state == "CANCELLED" and job.cancelled_by:
        return f"{cause} of the user {job.cancelled_by}"
    if job.state == "TIMEOUT" and job.limit:
        return f"{cause}: it might take {job.limit}"
    return cause


def _completed(sight: SlurmSnapshot) -> tuple[RunState, str | None]:
    if sight.finished:
        return RunState.SUCCEEDED, None
    return RunState.FAILED, 'its job ended well, but left no summary.json whose status is "finished"'


def _without_job(sight: SlurmSnapshot) -> tuple[RunState, str | None]:
    """Return the state of a job that Slurm has forgotten, from the files in the run's folder."""
    if sight.finished and sight.script_code in (0, None):
        return RunState.SUCCEEDED, None
    if sight.stop_asked or sight.script_code == STOPPED:
        cause = "stopped on request" if sight.stop_asked else "asked to end"
        return RunState.INTERRUPTED, _stopped(sight, cause)
    forgotten = f"Slurm no longer knows its job {sight.address}"
    if sight.script_code is None:
        return RunState.FAILED, f"{forgotten}, and its script recorded no exit code"
    return RunState.FAILED, sight.cause or f"{forgotten}; it ended with exit code {sight.script_code}"


def _stopped(sight: SlurmSnapshot, cause: str) -> str:
    return f"{cause}; {sight.checkpoint}" if sight.checkpoint else cause


def _why_failed(job: Job, sight: SlurmSnapshot) -> str:
    if sight.cause:
        return sight.cause
    if job.state in _BROKEN:
        return _BROKEN[job.state] + (f" (of {job.nodes})" if job.state == "NODE_FAIL" and job.nodes else "")
    # The output is in the run's folder, so the nodes do not see that folder or may not write to it.
    if job.signal == _NO_OUTPUT:
        return (
            "its nodes cannot write to the run's folder: it must be on a file system that they share "
            "(train.settings.folder)"
        )
    if job.signal:
        return f"its script was killed by signal {job.signal}"
    return f"its job is {job.state} with exit code {job.exit_code}: see slurm/job.*.out in the run's folder"
