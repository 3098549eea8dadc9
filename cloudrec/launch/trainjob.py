"""The launcher `trainjob`: Kubeflow Trainer, version 2, which makes a JobSet of a TrainJob."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.launch._kube.engine import INDEX, Engine, Phase, phase_of_conditions
from cloudrec.launch._kube.launcher import KubeLauncher

if TYPE_CHECKING:
    from collections.abc import Mapping


def _phase(job: Mapping[str, Any]) -> Phase:
    return phase_of_conditions(job, succeeded="Complete")


LAUNCHER = KubeLauncher(
    engine=Engine(
        name="trainjob",
        kind="trainer.kubeflow.org/v1alpha1/TrainJob",
        phase=_phase,
        addon="trainer",
        removal="Background",  # no change of a TrainJob is admitted whose TrainingRuntime has gone before it
        makes="jobset.x-k8s.io/v1alpha2/JobSet",
        index_label=INDEX,
    )
)
