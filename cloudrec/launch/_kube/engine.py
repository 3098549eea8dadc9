"""What differs between the operators that run our pods: the kind, its switch, how it tells its state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.kube.client import Kube


INDEX = "batch.kubernetes.io/job-completion-index"  # of an Indexed Job's pods


@dataclass(frozen=True, kw_only=True)
class Phase:
    """What an operator says of its object.

    Attributes:
        state: active, suspended, succeeded or failed.
        reason: the operator's own word for why.
        message: its own sentence.
    """

    state: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One operator.

    Attributes:
        name: what `--launcher` calls it.
        kind: the kind of object that stands for a run: GROUP/VERSION/KIND.
        addon: what `cloudrec addons install` calls the operator; empty where Kubernetes has it.
        suspend: the path of the switch that has its pods ended and the object kept.
        phase: reads the object.
        removal: how its object is deleted: Foreground, after all that it owns, or Background, before that,
            where its webhook refuses the last step of the former.
        makes: the kind of object of the run's name that the operator makes of it; empty for none.
        index_label: the label that numbers the pods, whose names differ in nothing else; empty for none.
        prints: whether ranks' lines are in their pods' logs; Ray keeps them for itself.
        trains: tells whether a pod of the run trains, rather than looks after others.
    """

    name: str
    kind: str
    phase: Callable[[Mapping[str, Any]], Phase]
    addon: str = ""
    suspend: tuple[str, ...] = ("spec", "suspend")
    removal: str = "Foreground"
    makes: str = ""
    index_label: str = ""
    prints: bool = True
    trains: Callable[[Mapping[str, Any]], bool] = field(default=lambda _pod: True)

    def get(self, kube: Kube, name: str, namespace: str) -> dict[str, Any] | None:
        """Return a run's object, None where there is none."""
        return kube.get(self.kind, name, namespace=namespace)

    def is_suspended(self, job: Mapping[str, Any]) -> bool:
        """Tell whether the object's switch is off."""
        value: Any = job
        for key in self.suspend:
            value = (value or {}).get(key)
        return value is True

    def suspension(self) -> dict[str, Any]:
        """Return the change that has the pods ended."""
        change: Any = True
        for key in reversed(self.suspend):
            change = {key: change}
        return dict(change)


def phase_of_conditions(
    job: Mapping[str, Any], *, succeeded: str, failed: str = "Failed", suspended: str = "Suspended"
) -> Phase:
    """Read an object that tells its state by conditions."""
    conditions = {
        str(each.get("type")): each
        for each in (job.get("status") or {}).get("conditions") or []
        if each.get("status") == "True"
    }
    for kind, state in ((succeeded, "succeeded"), (failed, "failed"), (suspended, "suspended")):
        if found := conditions.get(kind):
            return Phase(
                state=state, reason=str(found.get("reason", "")), message=str(found.get("message", ""))
            )
    return Phase(state="active")
