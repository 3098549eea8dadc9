"""The launcher `torchrun`: an Indexed Job of Kubernetes itself; no operator is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.launchers.kubernetes.engine import INDEX, JobOperator, Phase, phase_of_conditions
from cloudrec.launchers.kubernetes.launcher import KubeLauncher

if TYPE_CHECKING:
    from collections.abc import Mapping


def _phase(job: Mapping[str, Any]) -> Phase:
    return phase_of_conditions(job, succeeded="Complete")


LAUNCHER = KubeLauncher(
    engine=JobOperator(
        name="torchrun",
        kind="batch/v1/Job",
        phase=_phase,
        index_label=INDEX,
    )
)
