"""The launcher `pytorchjob`: Kubeflow's training operator, version 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.launchers.kubernetes.engine import JobOperator, Phase, phase_of_conditions
from cloudrec.launchers.kubernetes.launcher import KubeLauncher

if TYPE_CHECKING:
    from collections.abc import Mapping


def _phase(job: Mapping[str, Any]) -> Phase:
    return phase_of_conditions(job, succeeded="Succeeded")


LAUNCHER = KubeLauncher(
    engine=JobOperator(
        name="pytorchjob",
        kind="kubeflow.org/v1/PyTorchJob",
        phase=_phase,
        addon="training-operator",
        index_label="training.kubeflow.org/replica-index",
        suspend=("spec", "runPolicy", "suspend"),
    )
)
