"""The rules of each kind, as the modules beside this one declare them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.sandbox.kubernetes.resources import Resource
    from cloudrec.sandbox.kubernetes.rules.problems import Problems
    from cloudrec.sandbox.kubernetes.store import Store

    Default = Callable[[dict[str, Any]], None]
    Check = Callable[["Change", Problems], None]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One object on its way into the store; `old` is None where it is new."""

    store: Store
    resource: Resource
    new: Mapping[str, Any]
    old: Mapping[str, Any] | None

    @property
    def spec(self) -> Mapping[str, Any]:
        """What is wished."""
        spec: Mapping[str, Any] = self.new.get("spec") or {}
        return spec

    @property
    def old_spec(self) -> Mapping[str, Any]:
        """What was wished."""
        spec: Mapping[str, Any] = (self.old or {}).get("spec") or {}
        return spec


defaults: dict[str, list[Default]] = {}
checks: dict[str, list[Check]] = {}


def default(*keys: str) -> Callable[[Default], Default]:
    """Let a function fill in objects of these kinds."""

    def add(function: Default) -> Default:
        for key in keys:
            defaults.setdefault(key, []).append(function)
        return function

    return add


def check(*keys: str) -> Callable[[Check], Check]:
    """Let a function blame fields of objects of these kinds."""

    def add(function: Check) -> Check:
        for key in keys:
            checks.setdefault(key, []).append(function)
        return function

    return add
