"""The rules of each kind, as the other modules here register them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec_sandbox.kubernetes.objects.resources import Resource
    from cloudrec_sandbox.kubernetes.rules.problems import Problems
    from cloudrec_sandbox.kubernetes.storage.store import Store

    Default = Callable[[dict[str, Any]], None]
    Check = Callable[["Change", Problems], None]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One object to be stored; `old` is None if it is new."""

    store: Store
    resource: Resource
    new: Mapping[str, Any]
    old: Mapping[str, Any] | None

    @property
    def spec(self) -> Mapping[str, Any]:
        """Return the new spec."""
        spec: Mapping[str, Any] = self.new.get("spec") or {}
        return spec

    @property
    def old_spec(self) -> Mapping[str, Any]:
        """Return the old spec."""
        spec: Mapping[str, Any] = (self.old or {}).get("spec") or {}
        return spec


defaults: dict[str, list[Default]] = {}
checks: dict[str, list[Check]] = {}


def default(*keys: str) -> Callable[[Default], Default]:
    """Register a function that fills in objects of these kinds."""

    def add(function: Default) -> Default:
        for key in keys:
            defaults.setdefault(key, []).append(function)
        return function

    return add


def check(*keys: str) -> Callable[[Check], Check]:
    """Register a function that checks changes of these kinds, or of a subresource such as "jobs/status"."""

    def add(function: Check) -> Check:
        for key in keys:
            checks.setdefault(key, []).append(function)
        return function

    return add
