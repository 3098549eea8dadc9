"""The launcher `slurm` and Slurm's accounting, complete or incomplete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from cloudrec.launchers.base.ssh.shell import NOT_FOUND, Done
from cloudrec.launchers.slurm.accounting import Accounting, Association, Rights, UnknownEndError, associations
from cloudrec.launchers.slurm.jobs import Job, recorded
from cloudrec.launchers.slurm.tools import Slurm


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ("COMPLETED|0:0|n[1-2]|2026-11-22T01:46:37|01:00:00|/r", {"state": "COMPLETED", "nodes": "n[1-2]"}),
        ("FAILED|65:0|n1|2026-11-22T01:46:37|01:00:00|/r", {"state": "FAILED", "exit_code": 65}),
        ("FAILED|0:53|n1|2026-11-22T01:46:37|01:00:00|/r", {"state": "FAILED", "signal": 53}),
        ("OUT_OF_MEMORY|0:125|n1|Unknown|UNLIMITED|/r", {"state": "OUT_OF_MEMORY", "start": ""}),
        ("CANCELLED by 1000|0:15|n1|Unknown|1-00:00:00|/r", {"state": "CANCELLED", "cancelled_by": "1000"}),
        ("CANCELLED|0:0|None assigned|Unknown|01:00:00|/r", {"cancelled_by": "", "nodes": ""}),
        ("TIMEOUT|0:0|n1|Unknown|00:30:00|/a|b", {"limit": "00:30:00", "folder": "/a|b"}),
        ("PREEMPTED|0:0|n1|Unknown|00:30:00|/r", {"state": "PREEMPTED", "restarts": 0}),
        ("NODE_FAIL|1:0|n[1,5-9]|Unknown|00:30:00|/r", {"state": "NODE_FAIL", "nodes": "n[1,5-9]"}),
        ("BOOT_FAIL||n1|Unknown|00:30:00|/r", {"state": "BOOT_FAIL", "exit_code": 0, "signal": 0}),
    ],
)
def test_an_accounting_record_is_read(record: str, expected: dict[str, Any]) -> None:
    job = recorded(f"7|2026-11-22T01:46:37|{record}\n")
    assert job is not None
    assert {name: getattr(job, name) for name in expected} == expected


def test_a_requeued_job_has_a_record_per_start_without_those_of_an_older_job_id() -> None:
    lines = [
        "7|2026-11-22T03:00:00|COMPLETED|0:0|n1|2026-11-22T03:00:07|01:00:00|/runs/a",
        "7|2024-01-01T00:00:00|FAILED|1:0|n9|2024-01-01T00:00:00|01:00:00|/somebody/else",
        "7|2026-11-22T01:00:00|NODE_FAIL|0:0|n1|2026-11-22T01:00:00|01:00:00|/runs/a",
        "7|2026-11-22T02:00:00|PREEMPTED|0:0|n2|2026-11-22T02:00:00|01:00:00|/runs/a",
    ]
    job = recorded("\n".join(lines))
    assert job == Job(
        id=7,
        state="COMPLETED",
        nodes="n1",
        restarts=2,
        start="2026-11-22T03:00:07",
        limit="01:00:00",
        folder="/runs/a",
    )
    assert recorded("") is None
    assert recorded("no record\n") is None


@dataclass(frozen=True, kw_only=True)
class Answers:
    """A login node whose queue has purged every job; its other programs print given output.

    Attributes:
        recorded_output: recorded output by program; the others are not installed.
    """

    recorded_output: Mapping[str, Done]
    host: str = ""

    def run(self, words: Sequence[str], *, given: bytes = b"", timeout_s: float = 0.0) -> Done:  # noqa: ARG002
        forgotten = Done(code=1, out=b"", err="slurm_load_jobs error: Invalid job id specified")
        absent = Done(code=NOT_FOUND, out=b"", err=f"{words[0]}: not found")
        return {"squeue": forgotten, **self.recorded_output}.get(words[0], absent)


RECORD = b"7|2026-11-22T03:00:00|%s|0:15|n1|2026-11-22T03:00:07|01:00:00|/runs/a\n"


@pytest.mark.parametrize("sacct", [None, Done(code=1, out=b"", err="Slurm accounting storage is disabled")])
def test_a_purged_job_is_unknown_without_accounting(sacct: Done | None) -> None:
    assert Slurm(shell=Answers(recorded_output={"sacct": sacct} if sacct else {})).job(7) is None


@pytest.mark.parametrize(
    ("sacct", "words"),
    [
        (
            Done(code=1, out=b"", err="sacct: error: Problem talking to the database: Connection refused"),
            "does not answer for job 7: sacct: error: Problem talking",
        ),
        (Done(code=0, out=RECORD % b"RUNNING", err=""), "its accounting still has it as RUNNING"),
    ],
)
def test_a_purged_job_without_an_accounted_end_is_not_judged(sacct: Done, words: str) -> None:
    with pytest.raises(UnknownEndError, match=words):
        Slurm(shell=Answers(recorded_output={"sacct": sacct})).job(7)


def test_the_user_who_cancelled_a_job_is_named_if_known() -> None:
    recorded_output = {"sacct": Done(code=0, out=RECORD % b"CANCELLED by 1000", err="")}
    job = Slurm(shell=Answers(recorded_output=recorded_output)).job(7)
    assert job is not None
    assert job.cancelled_by == "1000"
    named = {**recorded_output, "id": Done(code=0, out=b"ann\n", err="")}
    assert Slurm(shell=Answers(recorded_output=named)).job(7) == replace(job, cancelled_by="ann")


def test_accounts_are_not_checked_if_slurm_does_not_require_or_list_them() -> None:
    config = b"AccountingStorageEnforce = %s\nClusterName             = big\n"
    asks = {"scontrol": Done(code=0, out=config % b"associations,limits", err="")}
    user = {"id": Done(code=0, out=b"ann\n", err="")}
    closed = {"sacctmgr": Done(code=1, out=b"", err="sacctmgr: error: Access/permission denied")}
    open_to_all = {"scontrol": Done(code=0, out=config % b"none", err="")}
    for recorded_output in (open_to_all, asks | user | closed, {}):
        assert Accounting(shell=Answers(recorded_output=recorded_output)).rights() is None
    recorded_output = asks | user | {"sacctmgr": Done(code=0, out=b"ads|\n", err="")}
    expected = Rights(user="ann", associations=(Association(account="ads"),))
    assert Accounting(shell=Answers(recorded_output=recorded_output)).rights() == expected


def test_associations_are_read_with_their_partitions() -> None:
    assert associations("ads|\nnight|urgent\n\n") == (
        Association(account="ads"),
        Association(account="night", partition="urgent"),
    )
