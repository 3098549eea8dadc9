"""Resizes of pods: new requests and limits of containers that run.

The rules are those of `ValidatePodResize` (`pkg/apis/core/validation`) and of the admission plugin
PodResizeValidator; the words are those that Kubernetes' own tests of resizes expect (`test/e2e/common/node`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.objects.quantities import amount, requests
from cloudrec_sandbox.kubernetes.rules import containers
from cloudrec_sandbox.kubernetes.rules.amounts import quality
from cloudrec_sandbox.kubernetes.rules.kinds import limits
from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.kubernetes.rules.problems import Problems
    from cloudrec_sandbox.kubernetes.storage.store import Store

_MUTABLE = ("cpu", "memory")


@check("pods/resize")
def _pod(change: Change, problems: Problems) -> None:
    if change.spec == change.old_spec:
        return
    new, old = change.spec["containers"], change.old_spec["containers"]
    if not new:
        problems.required("spec.containers")
    elif len(new) != len(old):
        problems.forbidden("spec.containers", "pod updates may not add or remove containers")
        return
    for path, wanted, present in _pairs(change):
        _check(path, wanted, present, problems)
    wished = quality(change.spec)
    if wished != quality(change.old_spec):
        problems.invalid("spec", wished, "Pod QOS Class may not change as a result of resizing")


def _check(path: str, new: Mapping[str, Any], old: Mapping[str, Any], problems: Problems) -> None:
    if new["name"] != old["name"]:
        problems.forbidden(f"{path}.name", "containers may not be renamed or reordered on resize")
        return
    wanted, present = new.get("resources") or {}, old.get("resources") or {}
    if wanted != present:
        containers.check_resources(wanted, f"{path}.resources", problems)
    is_other = new.get("resizePolicy") != old.get("resizePolicy")
    for field in ("requests", "limits"):
        before, after = present.get(field) or {}, wanted.get(field) or {}
        if {*before} & {*_MUTABLE} - {*after}:
            problems.forbidden(f"{path}.resources.{field}", f"resource {field} cannot be removed")
        is_other |= _rest(before) != _rest(after)
    if is_other:
        problems.forbidden("spec", "only cpu and memory resources are mutable")


def _pairs(change: Change) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    for field in ("containers", "initContainers"):
        both = zip(change.spec.get(field) or (), change.old_spec.get(field) or (), strict=False)
        for number, (new, old) in enumerate(both):
            yield f"spec.{field}[{number}]", new, old


def _rest(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in amounts.items() if name not in _MUTABLE}


def refuse(store: Store, pod: Mapping[str, Any]) -> None:
    """Refuse with 403 a pod that its namespace or the whole of its node is too small for."""
    limits.refuse(store, pod)
    node = store.table.get("nodes", ("", pod["spec"].get("nodeName") or ""))
    if node is None:
        return
    allocatable = (node.obj.get("status") or {}).get("allocatable") or {}
    wanted, found = requests(pod), []
    for name, unit in (("cpu", 1000), ("memory", 1)):
        most = amount(allocatable.get(name, 0))
        if wanted.get(name, 0.0) > most:
            found.append(f"{name}, requested: {wanted[name] * unit:.0f}, allocatable: {most * unit:.0f}")
    if found:
        why = f"node didn't have enough allocatable resources: {'; '.join(found)}"
        raise errors.forbidden("pods", "", pod["metadata"]["name"], why)
