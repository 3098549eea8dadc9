"""The launcher `pytorchjob`: Kubeflow's training operator, version 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.launch._kube.engine import Engine, Phase, phase_of_conditions
from cloudrec.launch._kube.launcher import KubeLauncher

if TYPE_CHECKING:
    from collections.abc import Mapping


def _phase(job: Mapping[str, Any]) -> Phase:
    return phase_of_conditions(job, succeeded="Succeeded")


LAUNCHER = KubeLauncher(
    engine=Engine(
        name="pytorchjob",
        kind="kubeflow.org/v1/PyTorchJob",
        phase=_phase,
        addon="training-operator",
        index_label="training.kubeflow.org/replica-index",
        suspend=("spec", "runPolicy", "suspend"),
    )
)
