"""Containers that are started again in their pods: where a cluster can do it, and what the ledger says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.kubernetes.context import has_restart_rules
from cloudrec.launchers.kubernetes.watch.losses import note_losses


@pytest.mark.parametrize(
    ("version", "has"),
    [
        ("v1.34.9-eks-1234", False),
        ("v1.35.0", True),
        ("v1.35.8-gke.1225000", True),
        ("v1.36.2", True),
        ("v2.0.0", True),
        ("v1.9.1", False),
        ("", False),
        ("unknown", False),
    ],
)
def test_rules_for_restarts_are_used_from_the_version_that_has_them_on_by_default(
    version: str, *, has: bool
) -> None:
    assert has_restart_rules(version) is has


def _pod(*, restarts: int, reason: str = "Error", phase: str = "Running", code: int = 137) -> dict[str, Any]:
    ended = {
        "exitCode": code,
        "reason": reason,
        "message": "lines of a log",
        "finishedAt": "2026-11-25T10:00:00Z",
    }
    state = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": 70, "message": "spent"}}
    status = {"name": "trainer", "restartCount": restarts, "state": state, "lastState": {"terminated": ended}}
    return {
        "metadata": {"name": "r-1-abcde", "uid": "u"},
        "spec": {"nodeName": "n"},
        "status": {"phase": phase, "containerStatuses": [status]},
    }


def test_each_restart_of_a_container_is_recorded_once_with_its_cause_and_time(tmp_path: Path) -> None:
    run = RunFolder(path=tmp_path)
    seen = (_pod(restarts=1), _pod(restarts=1), _pod(restarts=2, reason="OOMKilled"))
    for pod in (*seen, _pod(restarts=2, reason="OOMKilled", phase="Failed")):
        note_losses(run, run.ledger.read(), [pod], launch=1)
    found = run.ledger.read()
    assert [(each.event, each.details["uid"], each.details["exit_code"]) for each in found] == [
        ("pod_lost", "u/1", 137),
        ("pod_lost", "u/2", 137),
        ("pod_lost", "u", 70),
    ]
    assert found[0].details["cause"] == "it was killed (SIGKILL); its container was started again in its pod"
    assert "it used more memory than its limit" in found[1].details["cause"]
    assert found[0].time == 1_795_600_800.0
