"""A RayJob's head is not a training node, but the run needs it for its driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec.launchers.base.ledger import RunState
from tests.conformance.support_launchers import LONG, kubernetes

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def test_a_run_that_lost_the_node_of_its_head_resumes_from_the_newest_checkpoint(tmp_path: Path) -> None:
    with kubernetes(tmp_path, how="rayjob", takes="ray.io/node-type=head") as engine:
        run = engine.launch("headless", LONG)
        engine.wait_for_step(run, 8)
        engine.take_machine(run)
        engine.wait(run, lambda _: len(engine.begun_at(run)) > 1)
        assert engine.launcher.stop(run).state is RunState.INTERRUPTED
        first, *later = engine.begun_at(run)
    assert first == 0
    assert min(later) >= 5
