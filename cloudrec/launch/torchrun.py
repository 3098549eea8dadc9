"""The launcher `torchrun`: an Indexed Job of Kubernetes itself; no operator is needed."""

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
        name="torchrun",
        kind="batch/v1/Job",
        phase=_phase,
        index_label=INDEX,
    )
)
