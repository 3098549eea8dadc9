"""Where a run on Kubernetes is: its cluster, its results, its connection.

All that asks how a run is needs no more than this; what a launch needs beyond it is in `workloads`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from cloudrec.errors import SpecError
from cloudrec.kube.client import Kube
from cloudrec.kube.target import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.launch.runspec import RunSpec

RUN_LABEL, LAUNCH_LABEL = "cloudrec/run", "cloudrec/launch"
_connections: dict[tuple[str, str, str], Kube] = {}
_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`train.settings` as Kubernetes' launchers understand it.

    Attributes:
        cpus: cores that a pod asks for; 0 for none.
        memory_gib: memory that a pod asks for; 0 for none.
        priority_class: the pods' priority class.
        queue: Kueue's local queue.
        probe: whether a small pod looks at the data and the storage before the launch.
        wait_for_nodes: launch even where too few nodes are there now: an autoscaler brings them.
    """

    cpus: int = 0
    memory_gib: int = 0
    priority_class: str = ""
    queue: str = ""
    probe: bool = True
    wait_for_nodes: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Read them; SpecError names what is not known, or of another type."""
        kinds = {each.name: type(each.default) for each in fields(cls)}
        for name, value in given.items():
            if name not in kinds:
                raise SpecError(
                    f"train.settings has {name!r}, which no launcher of Kubernetes knows",
                    remedy=f"it knows: {', '.join(sorted(kinds))}",
                )
            if type(value) is not kinds[name] or (isinstance(value, int) and value < 0):
                raise SpecError(
                    f"train.settings.{name} is {value!r}; it must be a {kinds[name].__name__}, not negative"
                )
        return cls(**given)


def target_of(spec: RunSpec) -> Target:
    """Return the cluster on which a run is; SpecError where the run's spec tells of none."""
    if not spec.target:
        raise SpecError(
            f"the run {spec.name!r} tells of no Kubernetes cluster",
            remedy=f"cluster {spec.cluster!r} of {spec.provider!r} has none: choose another launcher",
        )
    return Target.of(spec.target)


def connect(target: Target) -> Kube:
    """Return this process's connection to a cluster; its identity is checked when it is made."""
    key = (target.kubeconfig, target.context, target.identity)
    with _lock:
        if key not in _connections:
            _connections[key] = Kube.connect(target)
        return _connections[key]


def disconnect() -> None:
    """End all connections of this process."""
    with _lock:
        for kube in _connections.values():
            kube.close()
        _connections.clear()
