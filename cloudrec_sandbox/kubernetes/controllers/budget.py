"""PodDisruptionBudgets: how many pods may be disrupted now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.kubernetes.controllers.base import Controller
from cloudrec_sandbox.kubernetes.storage.mirror import (
    is_ending,
    is_over,
    is_true,
    key_of,
    labels,
    with_conditions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec_sandbox.kubernetes.storage.mirror import Key, Object


class BudgetController(Controller):
    """Keeps the counts in their status."""

    resource: ClassVar[str] = "poddisruptionbudgets"
    kind: ClassVar[str] = "PodDisruptionBudget"
    source: ClassVar[str] = "controllermanager"

    def look(self, obj: Object) -> None:
        """Update the status once."""
        spec = obj["spec"]
        selector = (spec.get("selector") or {}).get("matchLabels") or {}
        pods = [
            pod
            for pod in self.cluster.mirror.selected(obj["metadata"]["namespace"], selector)
            if not is_over(pod)
        ]
        healthy = sum(is_true(pod, "Ready") and not is_ending(pod) for pod in pods)
        expected = self._expected(pods)
        if "maxUnavailable" in spec:
            wanted = max(0, expected - _share(spec["maxUnavailable"], expected))
        else:
            wanted = _share(spec.get("minAvailable", 1), expected)
        allowed = max(0, healthy - wanted) if expected else 0
        wish = {
            "type": "DisruptionAllowed",
            "status": str(allowed > 0),
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
            "observedGeneration": obj["metadata"]["generation"],
        }
        conditions = with_conditions(obj, [wish], self.cluster.timestamp())
        status: dict[str, Any] = {
            "observedGeneration": obj["metadata"]["generation"],
            "expectedPods": expected,
            "currentHealthy": healthy,
            "desiredHealthy": wanted,
            "disruptionsAllowed": allowed,
            "conditions": [
                {"message": "", **each} for each in conditions
            ],  # message is required in the schema
        }
        self.cluster.patch_status(self.resource, obj, status)

    def concerned(self, resource: str, obj: Object) -> Iterable[Key]:
        """Return the budgets that select a changed pod."""
        if resource != "pods":
            return ()
        return [
            key_of(each)
            for each in self.cluster.mirror.all(self.resource, obj["metadata"]["namespace"])
            if ((each["spec"].get("selector") or {}).get("matchLabels") or {}).items() <= labels(obj).items()
        ]

    def _expected(self, pods: list[Object]) -> int:
        """Return how many pods their owners want, which may be more than exist."""
        wanted: dict[str, int] = {}
        for pod in pods:
            owner = next(iter(pod["metadata"].get("ownerReferences") or ()), None)
            key = owner["uid"] if owner else pod["metadata"]["uid"]
            wanted[key] = self._wanted_by(pod, owner) if owner else 1
        return sum(wanted.values())

    def _wanted_by(self, pod: Object, owner: dict[str, Any]) -> int:
        fields = {"Job": ("jobs", "parallelism"), "ReplicaSet": ("replicasets", "replicas")}
        if owner["kind"] not in fields:
            return 1
        resource, field = fields[owner["kind"]]
        found = self.cluster.mirror.get(resource, pod["metadata"]["namespace"], owner["name"])
        return int(found["spec"].get(field) or 1) if found else 1


def _share(amount: int | str, whole: int) -> int:
    """Return a number, or a percentage of the whole, rounded up."""
    if isinstance(amount, str):
        return -(-whole * int(amount.rstrip("%")) // 100)
    return amount
