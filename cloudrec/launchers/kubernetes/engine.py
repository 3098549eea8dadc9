"""The differences between the operators that run a run's pods: the kind, the suspend field, the state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.kubernetes.client.client import Kube


INDEX = "batch.kubernetes.io/job-completion-index"  # the label of an Indexed Job's pods


@dataclass(frozen=True, kw_only=True)
class Phase:
    """The phase of a run's object, as its operator reports it.

    Attributes:
        state: active, suspended, succeeded or failed.
        reason: the reason in the operator's status, one word.
        message: the message in the operator's status.
    """

    state: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class JobOperator:
    """One operator.

    Attributes:
        name: the value of `--launcher`.
        kind: the kind of the object that represents a run: GROUP/VERSION/KIND.
        phase: returns the phase of the object.
        addon: the operator's name for `cloudrec addons install`; empty if Kubernetes has it built in.
        extra: cloudrec's extra that its pods need beside the trainer's; empty for none.
        suspend: the path of the boolean field that ends the pods and keeps the object.
        removal: how the object is deleted: Foreground, after the objects that it owns, or Background, before
            them. Background is for an operator whose webhook refuses the last step of Foreground.
        makes: the kind of the object with the run's name that the operator creates; empty for none.
        awaits: a part of its webhook's refusal of an object while the webhook's cache lacks another object
            that was created just before; empty for none.
        index_label: the label with a pod's number; empty if the pods have none.
        prints: whether the ranks' lines are in their pods' logs; Ray writes them to files.
        trains: returns whether a pod of the run trains; other pods only manage the run.
    """

    name: str
    kind: str
    phase: Callable[[Mapping[str, Any]], Phase]
    addon: str = ""
    extra: str = ""
    suspend: tuple[str, ...] = ("spec", "suspend")
    removal: str = "Foreground"
    makes: str = ""
    awaits: str = ""
    index_label: str = ""
    prints: bool = True
    trains: Callable[[Mapping[str, Any]], bool] = field(default=lambda _pod: True)

    def get(self, kube: Kube, name: str, namespace: str) -> dict[str, Any] | None:
        """Return a run's object; None if there is none."""
        return kube.get(self.kind, name, namespace=namespace)

    def is_suspended(self, job: Mapping[str, Any]) -> bool:
        """Return whether the object's suspend field is true."""
        value: Any = job
        for key in self.suspend:
            value = (value or {}).get(key)
        return value is True

    def suspension(self, *, is_suspended: bool = True) -> dict[str, Any]:
        """Return the patch that suspends the object, and so ends its pods, or that resumes it."""
        change: Any = is_suspended
        for key in reversed(self.suspend):
            change = {key: change}
        return dict(change)


def phase_of_conditions(
    job: Mapping[str, Any], *, succeeded: str, failed: str = "Failed", suspended: str = "Suspended"
) -> Phase:
    """Return the phase of an object whose status has conditions.

    Args:
        job: the object.
        succeeded: the type of the condition that reports success.
        failed: the type that reports failure.
        suspended: the type that reports suspension.
    """
    conditions = {
        str(each.get("type")): each
        for each in (job.get("status") or {}).get("conditions") or []
        if each.get("status") == "True"
    }
    # An object may have several true conditions; its end counts before a suspension.
    for kind, state in ((succeeded, "succeeded"), (failed, "failed"), (suspended, "suspended")):
        if found := conditions.get(kind):
            return Phase(
                state=state, reason=str(found.get("reason", "")), message=str(found.get("message", ""))
            )
    return Phase(state="active")
