"""How far a run is and what a save and a restart take, from the lines that cloudrec's trainer prints."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.client.errors import KubeError
from cloudrec_contract.printed import SavedLine, StepLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube

_LINES = 60
_PATIENCE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class ReportedProgress:
    """What a run has printed last.

    Attributes:
        pod: the uid of the pod that printed it.
        step: the steps that are done; None if it has printed none.
        steps: all steps of the run; None if it has printed none.
        saved: the step of the newest checkpoint; None without one.
        save_s: the seconds in which that was written; None without one.
    """

    pod: str
    step: int | None = None
    steps: int | None = None
    saved: int | None = None
    save_s: float | None = None


def progress_of(lines: Iterable[str], *, pod: str) -> ReportedProgress:
    """Return what the lines of a trainer say; the last ones count."""
    step: StepLine | None = None
    saved: SavedLine | None = None
    for line in lines:
        step = StepLine.parse(line) or step
        saved = SavedLine.parse(line) or saved
    return ReportedProgress(
        pod=pod,
        step=step.step if step else None,
        steps=step.steps if step else None,
        saved=saved.step if saved else None,
        save_s=saved.write_s if saved else None,
    )


def read_progress(
    kube: Kube, namespace: str, pods: Mapping[str, Sequence[Mapping[str, Any]]], *, known: str
) -> ReportedProgress | None:
    """Return what the pod of rank 0 has printed; None if no pod prints steps, or they cannot be read.

    Args:
        kube: a client of the API server.
        namespace: the namespace of the runs.
        pods: the run's pods, by their nodes.
        known: the uid of the pod that printed steps before; empty for none. Any other may have rank 0 now.
    """
    found = [pod for each in pods.values() for pod in each]
    for pod in sorted(found, key=lambda each: (each["metadata"]["uid"] != known, each["metadata"]["name"])):
        reported = _read(kube, namespace, pod)
        if reported is not None and reported.step is not None:
            return reported
    return None


def _read(kube: Kube, namespace: str, pod: Mapping[str, Any]) -> ReportedProgress | None:
    names = [each["name"] for each in pod["spec"].get("containers") or ()]
    try:
        lines = kube.logs(
            pod["metadata"]["name"],
            namespace=namespace,
            container=names[0] if names else "",
            tail=_LINES,
            read_s=_PATIENCE_S,
        )
        return progress_of(islice(lines, _LINES), pod=pod["metadata"]["uid"])
    except KubeError:  # its container starts, or has ended
        return None
