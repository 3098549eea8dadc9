"""All rules together, as the store uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes import workload_identity
from cloudrec_sandbox.kubernetes.objects.lifecycle import RESIZE
from cloudrec_sandbox.kubernetes.rules import admission, defaults, jobs, names, others, pods, registry
from cloudrec_sandbox.kubernetes.rules.kinds import resizes
from cloudrec_sandbox.kubernetes.rules.problems import Problems
from cloudrec_sandbox.kubernetes.rules.registry import Change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.objects.resources import Resource
    from cloudrec_sandbox.kubernetes.storage.store import Store

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
        workload_identity.fill(self._store, resource, new, old)

    def check(
        self, resource: Resource, new: Mapping[str, Any], old: Mapping[str, Any] | None, subresource: str
    ) -> None:
        """Refuse with 422 and all wrong fields, or with 403 what admission refuses."""
        problems = Problems()
        metadata = new["metadata"]
        if old is None or metadata != old["metadata"]:
            names.check_metadata(resource, metadata, problems)
        change = Change(store=self._store, resource=resource, new=new, old=old)
        for function in registry.checks.get(
            f"{resource.key}/{subresource}" if subresource else resource.key, ()
        ):
            function(change, problems)
        problems.refuse(resource, metadata.get("name", ""))
        if not subresource:
            admission.check(self._store, resource, new, old)
        elif subresource == RESIZE:
            resizes.refuse(self._store, new)

    def grace_s(self, resource: Resource, obj: Mapping[str, Any], asked: int | None) -> int:
        """Return a pod's grace period, unless it has ended or has no node; 0 for all other kinds."""
        if resource.key != "pods":
            return 0
        spec, phase = obj.get("spec") or {}, (obj.get("status") or {}).get("phase")
        if not spec.get("nodeName") or phase in _ENDED:
            return 0
        usual = int(spec.get("terminationGracePeriodSeconds", 30))
        return usual if asked is None else max(0, asked)
