"""Reads whether applied objects are ready: kinds are accepted, and pods of add-ons run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cloudrec.engine.clock import Clock
    from cloudrec.kubernetes.addons.inventory import ObjectReference
    from cloudrec.kubernetes.client.client import Kube

_FIRST_POLL_S, _SLOWEST_POLL_S = 0.2, 2.0


@dataclass(frozen=True, kw_only=True)
class State:
    """The readiness of one object.

    Attributes:
        what: its kind and name.
        is_ready: whether it is ready.
        found: a sentence on its present state.
    """

    what: str
    is_ready: bool
    found: str


def state_of(kube: Kube, reference: ObjectReference) -> State | None:
    """Return the readiness of an object; None for kinds that are ready as soon as they exist."""
    read = _STATES.get(reference.kind)
    if read is None:
        return None
    what = f"{reference.kind} {reference.name}"
    found = kube.get(reference.full_kind, reference.name, namespace=reference.namespace)
    if found is None:
        return State(what=what, is_ready=False, found="it does not exist")
    is_ready, text = read(found)
    return State(what=what, is_ready=is_ready, found=text)


def waiting(kube: Kube, references: Iterable[ObjectReference], clock: Clock, wait_s: float) -> list[State]:
    """Wait until all objects are ready; return those that are not after `wait_s` seconds."""
    left = [each for each in references if each.kind in _STATES]
    deadline, poll_s = clock.now() + clock.limit(wait_s), _FIRST_POLL_S
    while True:
        is_late = clock.now() >= deadline
        states = [(each, state_of(kube, each)) for each in left]
        pending = [(each, state) for each, state in states if state is not None and not state.is_ready]
        if not pending or is_late:
            return [state for _, state in pending]
        left = [each for each, _ in pending]
        clock.sleep(poll_s)
        poll_s = min(2 * poll_s, _SLOWEST_POLL_S)


def _daemon_set(found: Mapping[str, Any]) -> tuple[bool, str]:
    status = found.get("status") or {}
    wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    updated = status.get("updatedNumberScheduled", 0)
    # Before the controller has seen this generation, the counts are those of the earlier one.
    is_seen = status.get("observedGeneration", 0) >= found["metadata"].get("generation", 0)
    text = f"{ready} of {wanted} pods are ready" if is_seen else "its controller has not processed it yet"
    return is_seen and ready >= wanted and updated >= wanted, text


def _deployment(found: Mapping[str, Any]) -> tuple[bool, str]:
    status, wanted = found.get("status") or {}, (found.get("spec") or {}).get("replicas", 1)
    ready = status.get("availableReplicas", 0)
    is_seen = status.get("observedGeneration", 0) >= found["metadata"].get("generation", 0)
    return is_seen and ready >= wanted, f"{ready} of {wanted} pods are available"


def _definition(found: Mapping[str, Any]) -> tuple[bool, str]:
    conditions = (found.get("status") or {}).get("conditions") or []
    by_type = {each.get("type"): each for each in conditions}
    established = by_type.get("Established", {}).get("status") == "True"
    refused = by_type.get("NamesAccepted", {})
    if refused.get("status") == "False":
        return False, f"its names were refused: {refused.get('message', '')}"
    return established, "established" if established else "not established yet"


_STATES: Mapping[str, Callable[[Mapping[str, Any]], tuple[bool, str]]] = {
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
    "CustomResourceDefinition": _definition,
}
