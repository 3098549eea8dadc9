"""What the webhooks of well-known operators deny."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cloudrec_sandbox.kubernetes.objects.resources import Resource
    from cloudrec_sandbox.kubernetes.storage.store import Store

_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_REPLICAS = "spec.pytorchReplicaSpecs"
_RUNTIMES = {"ClusterTrainingRuntime": "clustertrainingruntimes", "TrainingRuntime": "trainingruntimes"}


def check(store: Store, resource: Resource, new: Mapping[str, Any]) -> None:
    """Refuse with 403 what the operator of the kind denies."""
    found = _WEBHOOKS.get((resource.group, resource.key))
    if found is None:
        return
    webhook, look = found
    if denied := list(look(store, new)):
        listed = denied[0] if len(denied) == 1 else f"[{', '.join(denied)}]"
        raise errors.ApiError(403, "Forbidden", f'admission webhook "{webhook}" denied the request: {listed}')


def _pytorch_job(_store: Store, new: Mapping[str, Any]) -> Iterator[str]:
    spec, name = new.get("spec") or {}, new["metadata"]["name"]
    if not _LABEL.fullmatch(name):
        yield f'metadata.name: Invalid value: "{name}": must be a DNS-1035 label, of 63 characters at most'
    elastic = spec.get("elasticPolicy") or {}
    if "nProcPerNode" in elastic and "nprocPerNode" in spec:
        yield "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode"
    for kind, replicas in (spec.get("pytorchReplicaSpecs") or {}).items():
        below = f"{_REPLICAS}[{kind}]"
        if kind not in ("Master", "Worker"):
            yield f'{below}: Unsupported value: "{kind}": supported values: "Master", "Worker"'
        if kind == "Master" and replicas.get("replicas", 1) != 1:
            yield f"{below}.replicas: Forbidden: must be 1"
        template = (replicas.get("template") or {}).get("spec") or {}
        containers = template.get("containers") or []
        if not any(each.get("name") == "pytorch" for each in containers):
            yield (
                f"{below}.template.spec.containers: Required value: "
                "must have at least one container with name pytorch"
            )
        for index, each in enumerate(containers):
            if not each.get("image"):
                yield f"{below}.template.spec.containers[{index}].image: Required value: must be required"


def _train_job(store: Store, new: Mapping[str, Any]) -> Iterator[str]:
    reference = (new.get("spec") or {}).get("runtimeRef") or {}
    kind, name = reference.get("kind", "ClusterTrainingRuntime"), reference.get("name", "")
    namespace = new["metadata"]["namespace"] if kind == "TrainingRuntime" else ""
    key = _RUNTIMES.get(kind)
    if key is None or store.table.get(key, (namespace, name)) is None:
        yield (
            f"spec.runtimeRef: Invalid value: {errors.go_like(reference)}: {kind}.trainer.kubeflow.org "
            f'"{name}" not found: the runtime must be created before the TrainJob is created'
        )


_WEBHOOKS: dict[tuple[str, str], tuple[str, Callable[[Store, Mapping[str, Any]], Iterator[str]]]] = {
    ("kubeflow.org", "pytorchjobs"): (
        "validator.pytorchjob.training-operator.kubeflow.org",
        _pytorch_job,
    ),
    ("trainer.kubeflow.org", "trainjobs"): ("validator.trainjob.trainer.kubeflow.org", _train_job),
}
