"""What the pods of a run ask of a queue, as Kueue counts it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.manifests.names import ROLE, TRAINER
from cloudrec.kubernetes.quantities import amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class PodDemand:
    """Equal pods of a run.

    Attributes:
        count: how many there are.
        requests: what each of them requests, by resource.
        selector: the labels that their nodes must have.
        tolerations: the taints that they tolerate.
    """

    count: int
    requests: Mapping[str, float]
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()


def demands_of(objects: Iterable[Mapping[str, Any]], nodes: int) -> list[PodDemand]:
    """Return the demands of a run's objects.

    Args:
        objects: the objects, in which each template of pods counts once.
        nodes: the number of the pods that train.
    """
    return [
        PodDemand(
            count=nodes if labels.get(ROLE) == TRAINER else 1,
            requests=requests_of(spec),
            selector=spec.get("nodeSelector") or {},
            tolerations=spec.get("tolerations") or (),
        )
        for each in objects
        for labels, spec in _templates(each)
    ]


def requests_of(pod: Mapping[str, Any]) -> dict[str, float]:
    """Return what the scheduler counts for a pod: its containers and sidecars, or more for its start.

    Kubernetes takes the limit for a request that is missing.
    """
    total: dict[str, float] = {}
    most: dict[str, float] = {}
    sidecars: dict[str, float] = {}
    for each in pod.get("initContainers") or ():
        own = _requests(each)
        if each.get("restartPolicy") == "Always":
            _add(sidecars, own)
        else:
            for name, value in own.items():
                most[name] = max(most.get(name, 0.0), value + sidecars.get(name, 0.0))
    for each in pod.get("containers") or ():
        _add(total, _requests(each))
    _add(total, sidecars)
    found = {name: max(total.get(name, 0.0), most.get(name, 0.0)) for name in {**total, **most}}
    _add(found, {name: amount(value) for name, value in (pod.get("overhead") or {}).items()})
    return found


def _requests(container: Mapping[str, Any]) -> dict[str, float]:
    resources = container.get("resources") or {}
    given = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount(value) for name, value in given.items()}


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0.0) + value


def _templates(value: Any) -> Iterator[tuple[Mapping[str, str], Mapping[str, Any]]]:  # noqa: ANN401 - a tree of JSON
    """Yield the labels and the spec of each template of pods in an object."""
    if isinstance(value, list):
        for each in value:
            yield from _templates(each)
    elif isinstance(value, dict):
        spec = value.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield (value.get("metadata") or {}).get("labels") or {}, spec
        else:
            for each in value.values():
                yield from _templates(each)
