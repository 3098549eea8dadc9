"""The status of a run on fewer nodes says how many make steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudrec.launchers.base.ledger import LedgerEvent, RunState
from cloudrec.launchers.base.record import PREEMPTED
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.kubernetes.operators.torchrun import LAUNCHER
from cloudrec.launchers.kubernetes.run_state import KubernetesSnapshot, judge
from cloudrec.launchers.kubernetes.watch.losses import stepping

LOSS = LedgerEvent(time=100.0, event=PREEMPTED, launch=1, details={})


def _start(time: float, ranks: int) -> dict[str, Any]:
    return {"kind": "start", "step": 0, "world_size": ranks, "time": time}


def _step(time: float) -> dict[str, Any]:
    return {"kind": "train", "step": 1, "time": time}


@pytest.mark.parametrize(
    ("lines", "nodes"),
    [
        ([], None),
        ([_start(10, 32)], None),
        ([_start(10, 32), _step(90)], 0),  # none since the loss
        ([_start(10, 32), _step(90), _start(130, 24)], 0),  # started again, without a step yet
        ([_start(10, 32), _step(90), _start(130, 24), _step(140)], 3),
    ],
)
def test_nodes_count_by_the_steps_since_the_loss(
    tmp_path: Path, lines: list[dict[str, Any]], nodes: int | None
) -> None:
    run = RunFolder(path=tmp_path)
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert stepping(run, [LOSS], 1, processes=8) == nodes


@pytest.mark.parametrize(
    ("nodes", "state", "cause"),
    [
        (0, RunState.RESTARTING, "1 of 2 nodes have made no step since"),
        (1, RunState.RUNNING, "1 of 2 nodes make steps"),
        (None, RunState.RUNNING, "1 of 2 nodes are at work"),
    ],
)
def test_a_run_that_makes_no_step_is_not_running(nodes: int | None, state: RunState, cause: str) -> None:
    pod = {"metadata": {"name": "r-1", "uid": "u"}, "status": {"phase": "Running"}}
    job = {"metadata": {"name": "r"}, "spec": {}, "status": {}}
    sight = KubernetesSnapshot(
        engine=LAUNCHER.engine, job=job, pods=[pod], nodes=2, min_nodes=1, has_run=True, stepping=nodes
    )
    status = judge(sight)
    assert (status.state, status.cause) == (state, cause)
