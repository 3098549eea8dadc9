"""The launcher `trainjob`: Kubeflow Trainer, version 2, which makes a JobSet of a TrainJob."""

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
        name="trainjob",
        kind="trainer.kubeflow.org/v1alpha1/TrainJob",
        phase=_phase,
        addon="trainer",
        # Foreground deletion ends with a change of the TrainJob, and Trainer's webhook refuses any change
        # once the TrainingRuntime is deleted.
        removal="Background",
        makes="jobset.x-k8s.io/v1alpha2/JobSet",
        # Trainer's webhook looks the runtime up in its cache (kubeflow/trainer, pkg/runtime/core).
        awaits="the runtime must be created before the TrainJob",
        index_label=INDEX,
    )
)
