"""All rules together, as the store asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.kubernetes.rules import (
    admission,
    defaults,
    jobs,
    names,
    others,
    pods,
    registry,
)
from cloudrec.sandbox.kubernetes.rules.problems import Problems
from cloudrec.sandbox.kubernetes.rules.registry import Change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.sandbox.kubernetes.resources import Resource
    from cloudrec.sandbox.kubernetes.store import Store

__all__ = ["Rules", "defaults", "jobs", "others", "pods"]
_ENDED = ("Succeeded", "Failed")


class Rules:
    """The rules of all kinds, on one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def fill(self, resource: Resource, new: dict[str, Any], old: Mapping[str, Any] | None) -> None:
        """Fill in defaults, and what admission adds."""
        for function in registry.defaults.get(resource.key, ()):
            function(new)
        admission.fill(self._store, resource, new, old)

    def check(
        self, resource: Resource, new: Mapping[str, Any], old: Mapping[str, Any] | None, subresource: str
    ) -> None:
        """Refuse with 422 and all fields that are to blame, or with 403 what admission does not let in."""
        problems = Problems()
        metadata = new["metadata"]
        if old is None or metadata != old["metadata"]:
            names.check_metadata(resource, metadata, problems)
        if not subresource:
            change = Change(store=self._store, resource=resource, new=new, old=old)
            for function in registry.checks.get(resource.key, ()):
                function(change, problems)
        problems.refuse(resource, metadata.get("name", ""))
        if not subresource:
            admission.check(self._store, resource, new, old)

    def grace_s(self, resource: Resource, obj: Mapping[str, Any], asked: int | None) -> int:
        """A pod's grace, unless it has ended or was never given to a node; nothing else has any."""
        if resource.key != "pods":
            return 0
        spec, phase = obj.get("spec") or {}, (obj.get("status") or {}).get("phase")
        if not spec.get("nodeName") or phase in _ENDED:
            return 0
        usual = int(spec.get("terminationGracePeriodSeconds", 30))
        return usual if asked is None else max(0, asked)
