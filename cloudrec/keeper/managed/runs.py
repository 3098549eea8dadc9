"""The runs of a managed cluster: one has the nodes, the others wait suspended for their turn."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cloudrec.errors import UsageError
from cloudrec.kubernetes.client.errors import AbsentError
from cloudrec.kubernetes.manifests.names import MANAGED_BY, MANAGER, ROLE, RUN, TRAINER
from cloudrec.kubernetes.wishes import DEADLINE, FEWEST, MAX_PRICE, NODES, QUEUED, TURNS, WORK
from cloudrec.launchers import launchers
from cloudrec.launchers.kubernetes.launcher import KubeLauncher
from cloudrec.launchers.kubernetes.submit import launch_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.launchers.kubernetes.engine import JobOperator

_RUNS = f"{MANAGED_BY}={MANAGER},{RUN}"
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True)
class ManagedRun:
    """A run that has not ended, or one of several clusters.

    Attributes:
        name: its name.
        engine: the operator of its object.
        began: its creation, in seconds since the epoch.
        nodes: the nodes that it needs.
        deadline_s: the seconds from its creation in which it must be finished; None without a deadline.
        work_s: the seconds that it trains, as its user expects; None without a deadline.
        max_price: the most that a node may cost, in USD an hour; None for any price.
        is_suspended: whether it is suspended.
        is_queued: whether the keeper has suspended it until its turn.
        fewest: the nodes with which it continues.
        launch: the number of its launch.
        is_shared: whether it may move to clusters of other regions.
        ended: how it ended, succeeded or failed; empty before its end.
    """

    name: str
    engine: JobOperator
    began: float
    nodes: int
    deadline_s: float | None
    work_s: float | None
    max_price: float | None
    is_suspended: bool
    is_queued: bool
    fewest: int = 1
    launch: int = 0
    is_shared: bool = False
    ended: str = ""

    @property
    def is_wanted(self) -> bool:
        """Whether it runs, or waits for its turn; a run that its user has stopped does neither."""
        return not self.is_suspended or self.is_queued


def managed_runs(kube: Kube, namespace: str) -> list[ManagedRun]:
    """Return the runs that have not ended, and all of several clusters, in the order of their creation."""
    found = list[ManagedRun]()
    for launcher in launchers().values():
        if not isinstance(launcher, KubeLauncher):
            continue
        engine = launcher.engine
        try:
            jobs = kube.list(engine.kind, namespace=namespace, labels=_RUNS)
        except (AbsentError, UsageError):  # the kind of an operator that is not installed
            continue
        found += [run for run in (_run(job, engine) for job in jobs) if run.is_shared or not run.ended]
    return sorted(found, key=lambda run: (run.began, run.name))


def _run(job: Mapping[str, Any], engine: JobOperator) -> ManagedRun:
    metadata = job["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    state = engine.phase(job).state
    return ManagedRun(
        name=metadata["name"],
        engine=engine,
        began=datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
        nodes=int(_number(labels.get(NODES)) or 1),
        deadline_s=_number(labels.get(DEADLINE)),
        work_s=_number(labels.get(WORK)),
        max_price=_number(labels.get(MAX_PRICE)),
        is_suspended=engine.is_suspended(job),
        is_queued=QUEUED in annotations,
        fewest=int(_number(labels.get(FEWEST)) or _number(labels.get(NODES)) or 1),
        launch=launch_of(job),
        is_shared=TURNS in labels,
        ended=state if state in ("succeeded", "failed") else "",
    )


def queue_run(kube: Kube, run: ManagedRun, namespace: str) -> None:
    """Suspend a run until its turn."""
    mark = {"metadata": {"annotations": {QUEUED: "true"}}}
    kube.patch(run.engine.kind, run.name, {**run.engine.suspension(), **mark}, namespace=namespace)


def release_run(kube: Kube, run: ManagedRun, namespace: str) -> None:
    """Let a run that the keeper has suspended begin, or continue."""
    change = run.engine.suspension(is_suspended=False)
    mark = {"metadata": {"annotations": {QUEUED: None}}}
    kube.patch(run.engine.kind, run.name, {**change, **mark}, namespace=namespace)


def forget_run(kube: Kube, run: ManagedRun, namespace: str) -> None:
    """Take a suspended run out of the queue, as of one that has ended in another cluster."""
    mark = {"metadata": {"annotations": {QUEUED: None}}}
    kube.patch(run.engine.kind, run.name, mark, namespace=namespace)


def pods_by_node(kube: Kube, namespace: str, run: str = "") -> Mapping[str, list[dict[str, Any]]]:
    """Return the pods of a run, or of all runs, that train and have a node, by the name of the node."""
    found: dict[str, list[dict[str, Any]]] = {}
    of_run = f"{RUN}={run}" if run else RUN
    for pod in kube.list("Pod", namespace=namespace, labels=f"{of_run},{ROLE}={TRAINER}"):
        node = pod["spec"].get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in _ENDED:
            found.setdefault(node, []).append(pod)
    return found


def _number(text: object) -> float | None:
    """Return a label's number; None if it is absent or none."""
    try:
        return float(str(text)) if text is not None else None
    except ValueError:
        return None
