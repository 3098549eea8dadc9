"""The flavors of a ClusterQueue, and why Kueue cannot assign one to pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.quantities import amount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kubernetes.queues.demand import PodDemand

_GIB = 1024**3


@dataclass(frozen=True, kw_only=True)
class Flavor:
    """A flavor of a ClusterQueue.

    Attributes:
        name: its name.
        spec: the spec of its ResourceFlavor; None if there is no such object.
        levels: the labels of its Topology's levels; None if there is no such object, or none is named.
        quota: the quota of each resource that the ClusterQueue has of it.
        is_borrowing: whether the ClusterQueue may borrow from its cohort.
    """

    name: str
    spec: Mapping[str, Any] | None
    levels: Sequence[str] | None
    quota: Mapping[str, Mapping[str, Any]]
    is_borrowing: bool

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of its nodes."""
        return (self.spec or {}).get("nodeLabels") or {}

    @property
    def topology(self) -> str:
        """The name of its Topology; empty without one."""
        return str((self.spec or {}).get("topologyName") or "")

    def most(self, resource: str) -> float:
        """Return how much one run can have of a resource."""
        given = self.quota.get(resource) or {}
        nominal = amount(given.get("nominalQuota", 0))
        if not self.is_borrowing:
            return nominal
        limit = given.get("borrowingLimit")
        return float("inf") if limit is None else nominal + amount(limit)

    def excludes(self, demand: PodDemand, keys: set[str]) -> str:
        """Return why its nodes are not for these pods; empty if they are.

        Args:
            demand: the pods.
            keys: the labels that any flavor of the group names; others of the pods are not compared.
        """
        for key, value in demand.selector.items():
            if key in keys and self.labels.get(key) != value:
                own = self.labels.get(key, "none")
                return f"{self.name} is for nodes with {key}={own}, and the pods need {value}"
        tolerations = [*demand.tolerations, *((self.spec or {}).get("tolerations") or ())]
        for taint in (self.spec or {}).get("nodeTaints") or ():
            is_soft = taint.get("effect") == "PreferNoSchedule"
            if not is_soft and not any(_tolerates(each, taint) for each in tolerations):
                return f"the pods do not tolerate {taint.get('key')} of {self.name}"
        return ""

    def lacks_quota(self, demands: Sequence[PodDemand], names: set[str]) -> str:
        """Return of which resource its quota is smaller than what pods request together; empty for none."""
        for name in sorted(names):
            need = sum(each.count * each.requests.get(name, 0.0) for each in demands)
            if need > self.most(name):
                quota = _shown(name, self.most(name))
                return f"{self.name} has a quota of {quota} {name}, and the run needs {_shown(name, need)}"
        return ""

    def lacks_nodes(self, nodes: Sequence[Mapping[str, Any]]) -> str:
        """Return that the cluster has no node of it, or none that its topology includes; empty if it has."""
        labels: list[Mapping[str, str]] = [each["metadata"].get("labels") or {} for each in nodes]
        own = [each for each in labels if self.labels.items() <= each.items()]
        if not own:
            return f"no node has the labels of {self.name} ({_pairs(self.labels)})"
        levels = self.levels or ()
        if not any(all(level in each for level in levels) for each in own):
            return (
                f"no node of {self.name} has all labels of the Topology {self.topology}: {', '.join(levels)}"
            )
        return ""


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (
        taint.get("value") or ""
    )


def _shown(name: str, value: float) -> str:
    return f"{value:.6g}" if name == "cpu" or "/" in name else f"{value / _GIB:.6g}Gi"


def _pairs(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items())
