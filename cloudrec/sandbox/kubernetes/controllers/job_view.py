"""A Job at one look: what it was, what has been counted, what is to be said of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.kubernetes.mirror import condition, is_true, with_conditions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.sandbox.kubernetes.mirror import Object


@dataclass(kw_only=True)
class View:
    """A Job at one look.

    Attributes:
        job: the Job as it was.
        pods: its pods as they were.
        succeeded: how many have succeeded by now.
        failed: how many failures count by now.
        completed: the indexes that have succeeded.
        conditions: its conditions by now.
        moment: now.
        final: what a FailJob rule said.
    """

    job: Object
    pods: list[Object]
    succeeded: int
    failed: int
    completed: set[int]
    conditions: list[dict[str, Any]]
    moment: str
    final: str = ""

    def holds(self, kind: str) -> bool:
        """Whether a condition holds by now."""
        return is_true(self._as_object(), kind)

    def find(self, kind: str) -> Mapping[str, Any] | None:
        """A condition as it is by now."""
        return condition(self._as_object(), kind)

    def turn(self, kind: str, reason: str, message: str, *, status: str = "True") -> None:
        """Set a condition."""
        wish = {"type": kind, "status": status, "reason": reason, "message": message}
        self.conditions = with_conditions(self._as_object(), [wish], self.moment, probed=True)

    def _as_object(self) -> dict[str, Any]:
        return {"status": {"conditions": self.conditions}}
