"""Controllers that belong to an operator: they act only while it is installed."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from cloudrec_sandbox.kubernetes.controllers.base import Controller
from cloudrec_sandbox.kubernetes.storage.mirror import is_ending

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec_sandbox.kubernetes.controllers.custom_resources.operators import Operators
    from cloudrec_sandbox.kubernetes.storage.cluster import Cluster, Worker
    from cloudrec_sandbox.kubernetes.storage.mirror import Key, Object


class OperatedController(Controller):
    """A controller of an operator."""

    operator: ClassVar[str]

    def __init__(self, cluster: Cluster, worker: Worker, operators: Operators) -> None:
        super().__init__(cluster, worker)
        self.operators = operators

    def look(self, obj: Object) -> None:
        """Act, if the operator works."""
        if self.operators.works(self.operator) and not is_ending(obj):
            self.operate(obj)

    @abstractmethod
    def operate(self, obj: Object) -> None:
        """Bring an object a step closer to its spec."""

    def concerned(self, resource: str, _obj: Object) -> Iterable[Key]:
        """Return all objects when an operator's pod starts, since it missed their changes."""
        return self.waiting() if resource == "pods" and self.operators.works(self.operator) else ()

    def waiting(self) -> list[Key]:
        """Return the objects without a status."""
        return [
            (each["metadata"].get("namespace", ""), each["metadata"]["name"])
            for each in self.cluster.mirror.all(self.resource)
            if not each.get("status")
        ]
