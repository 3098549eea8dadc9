"""A Job at one look: its state before, what has been counted, and its new status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.storage.mirror import condition, is_true, with_conditions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.storage.mirror import Object


@dataclass(kw_only=True)
class View:
    """A Job at one look.

    Attributes:
        job: the Job as it was.
        pods: its pods as they were.
        succeeded: how many have succeeded by now.
        failed: how many failures count by now.
        completed: the indexes that have succeeded.
        failed_indexes: the indexes that have failed more often than backoffLimitPerIndex allows.
        conditions: its conditions by now.
        moment: the present time.
        final: the message of a FailJob rule; '' without one.
    """

    job: Object
    pods: list[Object]
    succeeded: int
    failed: int
    completed: set[int]
    failed_indexes: set[int]
    conditions: list[dict[str, Any]]
    moment: str
    final: str = ""

    def holds(self, kind: str) -> bool:
        """Return whether a condition is true by now."""
        return is_true(self._as_object(), kind)

    def find(self, kind: str) -> Mapping[str, Any] | None:
        """Return a condition as it is by now; None if there is none."""
        return condition(self._as_object(), kind)

    def turn(self, kind: str, reason: str, message: str, *, status: str = "True") -> None:
        """Set a condition."""
        wish = {"type": kind, "status": status, "reason": reason, "message": message}
        self.conditions = with_conditions(self._as_object(), [wish], self.moment, probed=True)

    def _as_object(self) -> dict[str, Any]:
        return {"status": {"conditions": self.conditions}}
