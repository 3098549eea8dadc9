"""How a run is, judged from its job and from what its agents have left. Pure functions: no call, no file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.launch.base import RunStatus, Worker
from cloudrec.launch.ledger import RunState
from cloudrec.launch.verdict import STOPPED

if TYPE_CHECKING:
    from cloudrec.launch._slurm.jobs import Job

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
    "BeginTime": "Slurm lets a job rest before it starts again",
    "PartitionTimeLimit": "its time limit is above the partition's: stop it, and ask for less",
    "PartitionNodeLimit": "it asks for more nodes than the partition gives: stop it, and ask for fewer",
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
_NO_OUTPUT = 53  # the "signal" by which slurmd tells that it could not open the job's output


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What was seen of one launch of a run.

    Args:
        job: its job; None where Slurm does not know it any more.
        address: the job's address.
        stop_asked: whether `stop` asked for the end.
        finished: whether the trainer says that all its work is done.
        last_word: what the job's script ended with; None where it did not end by itself.
        cause: what an agent of its says went wrong; empty when none says so.
        checkpoint: words about the newest checkpoint; empty where nobody has looked.
    """

    job: Job | None
    address: str = ""
    stop_asked: bool = False
    finished: bool = False
    last_word: int | None = None
    cause: str = ""
    checkpoint: str = ""


def judge(sight: Sight) -> RunStatus:
    """Return the run's status; attempts and preemptions are for who keeps the ledger."""
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


def _state(job: Job, sight: Sight) -> tuple[RunState, str | None]:
    if job.state in _WAITS:
        words = _REASONS.get(job.reason, job.reason)
        return (RunState.RESTARTING if job.restarts else RunState.PENDING), words or None
    if job.state in _REQUEUED:
        return RunState.RESTARTING, "it was put back into the queue"
    if job.state in _WORKS:
        held = "Slurm has suspended it" if job.state in ("SUSPENDED", "STOPPED") else None
        return RunState.RUNNING, "stopped on request: it is still ending" if sight.stop_asked else held
    return _ended(job, sight)


def _ended(job: Job, sight: Sight) -> tuple[RunState, str | None]:
    if job.state == "COMPLETED":
        return _completed(sight)
    told_to_end = STOPPED in (job.exit_code, sight.last_word)
    who = _taken(job) or ("told to end" if told_to_end else None)
    if sight.stop_asked or who:
        return RunState.INTERRUPTED, _stopped(sight, "stopped on request" if sight.stop_asked else str(who))
    return RunState.FAILED, _why_failed(job, sight)


def _taken(job: Job) -> str:
    """Return who has taken the job its nodes, or its time; empty where nobody has."""
    words = _TAKEN.get(job.state, "")
    if job.state == "CANCELLED" and job.cancelled_by:
        return f"{words} of the user {job.cancelled_by}"
    if job.state == "TIMEOUT" and job.limit:
        return f"{words}: it might take {job.limit}"
    return words


def _completed(sight: Sight) -> tuple[RunState, str | None]:
    if sight.finished:
        return RunState.SUCCEEDED, None
    return RunState.FAILED, 'its job ended well, but left no summary.json whose status is "finished"'


def _without_job(sight: Sight) -> tuple[RunState, str | None]:
    """Judge a job that Slurm has forgotten by what it has left."""
    if sight.finished and sight.last_word in (0, None):
        return RunState.SUCCEEDED, None
    if sight.stop_asked or sight.last_word == STOPPED:
        who = "stopped on request" if sight.stop_asked else "told to end"
        return RunState.INTERRUPTED, _stopped(sight, who)
    forgotten = f"Slurm no longer knows its job {sight.address}"
    if sight.last_word is None:
        return RunState.FAILED, f"{forgotten}, and it has left no word"
    return RunState.FAILED, sight.cause or f"{forgotten}; it ended with exit code {sight.last_word}"


def _stopped(sight: Sight, who: str) -> str:
    return f"{who}; {sight.checkpoint}" if sight.checkpoint else who


def _why_failed(job: Job, sight: Sight) -> str:
    if sight.cause:
        return sight.cause
    if job.state in _BROKEN:
        return _BROKEN[job.state] + (f" (of {job.nodes})" if job.state == "NODE_FAIL" and job.nodes else "")
    if job.signal == _NO_OUTPUT:
        return (
            "its nodes cannot write to the run's folder: it must be on a file system that they share "
            "(train.settings.folder)"
        )
    if job.signal:
        return f"its script was killed by signal {job.signal}"
    return f"its job is {job.state} with exit code {job.exit_code}: see slurm/job.*.out in the run's folder"
