"""Controllers that come with an operator: they act only while that is installed."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from cloudrec.sandbox.kubernetes.controllers.base import Controller
from cloudrec.sandbox.kubernetes.mirror import is_ending

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec.sandbox.kubernetes.cluster import Cluster, Worker
    from cloudrec.sandbox.kubernetes.controllers.operators import Operators
    from cloudrec.sandbox.kubernetes.mirror import Key, Object


class OperatedController(Controller):
    """A controller of an operator."""

    operator: ClassVar[str]

    def __init__(self, cluster: Cluster, worker: Worker, operators: Operators) -> None:
        super().__init__(cluster, worker)
        self.operators = operators

    def look(self, obj: Object) -> None:
        """Act, if the operator is there."""
        if self.operators.works(self.operator) and not is_ending(obj):
            self.operate(obj)

    @abstractmethod
    def operate(self, obj: Object) -> None:
        """Bring an object a step nearer to its spec."""

    def concerned(self, resource: str, _obj: Object) -> Iterable[Key]:
        """Pods of an operator coming up have it look at everything."""
        return self.waiting() if resource == "pods" and self.operators.works(self.operator) else ()

    def waiting(self) -> list[Key]:
        """Objects that nobody has looked at yet."""
        return [
            (each["metadata"].get("namespace", ""), each["metadata"]["name"])
            for each in self.cluster.mirror.all(self.resource)
            if not each.get("status")
        ]
