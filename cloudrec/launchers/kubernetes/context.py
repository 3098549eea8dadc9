"""The cluster of a run on Kubernetes, the connection to it, and the run's settings.

Reading the state of a run needs only this module; `workloads` has what a launch needs besides.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from cloudrec.errors import SpecError
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.spec.durations import seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec

_VERSION = re.compile(r"v(\d+)\.(\d+)")
_WITH_RULES = (1, 35)
REPLACE, REPORT = DEAD_NODES = ("replace", "report")
PREFERRED, REQUIRED, ANYWHERE = TOPOLOGIES = ("preferred", "required", "anywhere")
LOOK_S = 5.0  # for which a cluster is asked what to show of a run
RUN_LABEL, LAUNCH_LABEL = "cloudrec/run", "cloudrec/launch"
_connections: dict[tuple[str, str, str], Kube] = {}
_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings `train.settings` of the launchers for Kubernetes.

    Attributes:
        cpus: cores that a pod requests; 0 for a share of the node's.
        memory_gib: memory that a pod requests, in GiB; 0 for a share of the node's.
        priority_class: the pods' priority class.
        queue: Kueue's local queue.
        topology: whether Kueue places all pods in one part of the network: preferred, required, anywhere.
            Empty is preferred, if the queue has a topology.
        probe: whether a small pod checks the data and the storage before the launch.
        wait_for_nodes: launch even if the cluster has too few nodes now, for an autoscaler to add them.
        start_timeout_s: seconds in which all nodes must join before the first step; 0 is no limit.
            Then the run fails with exit code 71, and its nodes are free again.
        dead_node: what becomes of a pod whose node is dead while its Node object stays: replace or report.
            Empty is replace for cloudrec's trainer with a storage, whose results and checkpoints a node that
            is cut off cannot overwrite, and report for any other program.
        deadline: on a managed cluster, the time from the launch in which the run must be finished, such as
            30h; empty for none.
        work: with a deadline, the time that the run trains as its user expects, such as 24h.
        max_price: on a managed cluster, the most that a node may cost, in USD an hour; 0 for any price.
    """

    cpus: int = 0
    memory_gib: int = 0
    priority_class: str = ""
    queue: str = ""
    topology: str = ""
    probe: bool = True
    wait_for_nodes: bool = False
    start_timeout_s: int = 3600
    dead_node: str = ""
    deadline: str = ""
    work: str = ""
    max_price: float = 0.0

    @property
    def deadline_s(self) -> float:
        """The deadline in seconds; 0 for none."""
        return seconds_of(self.deadline) if self.deadline else 0.0

    @property
    def work_s(self) -> float:
        """The expected work in seconds; 0 if it is not known."""
        return seconds_of(self.work) if self.work else 0.0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Return the settings in a document; SpecError for an unknown name or a wrong type."""
        kinds = {each.name: type(each.default) for each in fields(cls)}
        for name, value in given.items():
            if name not in kinds:
                raise SpecError(
                    f"train.settings has {name!r}, which no launcher of Kubernetes knows",
                    remedy=f"it knows: {', '.join(sorted(kinds))}",
                )
            is_kind = type(value) is kinds[name] or (kinds[name] is float and type(value) is int)
            if not is_kind or (isinstance(value, int | float) and value < 0):
                raise SpecError(
                    f"train.settings.{name} is {value!r}; it must be a {kinds[name].__name__}, not negative"
                )
        settings = cls(**given)
        if settings.dead_node not in ("", *DEAD_NODES):
            raise SpecError(
                f"train.settings.dead_node is {settings.dead_node!r}",
                remedy=f"write one of: {', '.join(DEAD_NODES)}",
            )
        _check_deadline(settings)
        if settings.topology not in ("", *TOPOLOGIES):
            raise SpecError(
                f"train.settings.topology is {settings.topology!r}",
                remedy=f"write one of: {', '.join(TOPOLOGIES)}",
            )
        if settings.topology == REQUIRED and not settings.queue:
            raise SpecError(
                f"train.settings.topology is {REQUIRED!r} without train.settings.queue",
                remedy="name a queue; without one, ranks are ordered by the topology",
            )
        return settings


def _check_deadline(settings: Settings) -> None:
    for name in ("deadline", "work"):
        text = getattr(settings, name)
        try:
            seconds_of(text or "1s")
        except ValueError as error:
            raise SpecError(
                f"train.settings.{name} is {text!r}: it {error}", remedy="write one such as 30h"
            ) from None
    if bool(settings.deadline) != bool(settings.work):
        raise SpecError(
            "a deadline needs the time that the run trains, and the other way round",
            remedy="give both, such as --deadline 30h --work 24h",
        )
    if settings.deadline_s and settings.deadline_s <= settings.work_s:
        raise SpecError(
            f"{settings.work} of work do not fit into a deadline of {settings.deadline}",
            remedy="give a later deadline: restarts take time too",
        )


def target_of(spec: RunSpec) -> ClusterTarget:
    """Return the cluster of a run; SpecError if the run's spec names none."""
    if not isinstance(spec.target, ClusterTarget):
        raise SpecError(
            f"the run {spec.name!r} names no Kubernetes cluster",
            remedy=f"cluster {spec.cluster!r} of {spec.provider!r} has none: choose another launcher",
        )
    return spec.target


def spec_here(run: RunFolder) -> RunSpec:
    """Return a run's spec for the cluster that has the run now."""
    spec = run.spec()
    if not spec.elsewhere:
        return spec
    from cloudrec.launchers.kubernetes.turns import spec_by_turn  # noqa: PLC0415 - few runs need it

    return spec_by_turn(run)


def connect(target: ClusterTarget) -> Kube:
    """Return this process's connection to a cluster. A new connection checks the cluster's identity."""
    key = (target.kubeconfig, target.context, target.identity)
    with _lock:
        if key not in _connections:
            _connections[key] = Kube.connect(target)
        return _connections[key]


def restarts_in_place(target: ClusterTarget) -> bool:
    """Return whether a cluster restarts a container in its pod by rules."""
    return has_restart_rules(connect(target).version())


def has_restart_rules(version: str) -> bool:
    """Return whether a version of Kubernetes has rules for restarts (KEP-5307, on by default since 1.35).

    An older API server refuses the fields, or drops them. An older kubelet ignores them, and the pod ends.
    """
    found = _VERSION.match(version)
    return found is not None and (int(found[1]), int(found[2])) >= _WITH_RULES


def disconnect() -> None:
    """Close all connections of this process."""
    with _lock:
        for kube in _connections.values():
            kube.close()
        _connections.clear()
