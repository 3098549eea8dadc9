"""The launcher `jobset`: a JobSet with one Indexed Job, for clusters that queue or place JobSets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.launchers.kubernetes.engine import INDEX, JobOperator, Phase, phase_of_conditions
from cloudrec.launchers.kubernetes.launcher import KubeLauncher

if TYPE_CHECKING:
    from collections.abc import Mapping


def _phase(job: Mapping[str, Any]) -> Phase:
    return phase_of_conditions(job, succeeded="Completed")


LAUNCHER = KubeLauncher(
    engine=JobOperator(
        name="jobset",
        kind="jobset.x-k8s.io/v1alpha2/JobSet",
        phase=_phase,
        addon="jobset",
        index_label=INDEX,
    )
)
