"""What the webhooks of well-known operators deny."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cloudrec_sandbox.kubernetes.objects.resources import Resource
    from cloudrec_sandbox.kubernetes.storage.store import Store

_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LONGEST = 63
_REASONS = {
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
}
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
    entry = None if key is None else store.table.get(key, (namespace, name))
    if entry is None or _is_newer_than_cache(store, entry.obj):
        yield (
            f"spec.runtimeRef: Invalid value: {errors.go_like(reference)}: {kind}.trainer.kubeflow.org "
            f'"{name}" not found: the runtime must be created before the TrainJob is created'
        )


def _is_newer_than_cache(store: Store, obj: Mapping[str, Any]) -> bool:
    """Return whether a webhook that reads through its cache does not see the object yet."""
    created = datetime.fromisoformat(obj["metadata"]["creationTimestamp"]).timestamp()
    return store.clock.now() - created < store.webhook_lag_s


def _job_set(_store: Store, new: Mapping[str, Any]) -> Iterator[str]:
    """Check a JobSet as its webhook does (kubernetes-sigs/jobset, pkg/webhooks/jobset_webhook.go)."""
    spec, name = new.get("spec") or {}, new["metadata"]["name"]
    for each in spec.get("replicatedJobs") or []:
        yield from _replicated_job(name, each)
    subdomain = (spec.get("network") or {}).get("subdomain", "")
    if subdomain and not _LABEL.fullmatch(subdomain):
        yield ".spec.network.subdomain is too long, must be less than 63 characters"
    known = {each["name"] for each in spec.get("replicatedJobs") or []}
    for target in (spec.get("successPolicy") or {}).get("targetReplicatedJobs") or ():
        if target not in known:
            yield f"invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs"
    for rule in (spec.get("failurePolicy") or {}).get("rules") or ():
        for reason in sorted(set(rule.get("onJobFailureReasons") or ()) - _REASONS):
            yield f"invalid job failure reason '{reason}' in failure policy is not a recognized reason"


def _replicated_job(name: str, each: Mapping[str, Any]) -> Iterator[str]:
    """Check the names of the Jobs and pods that a replicated Job makes."""
    job = f"{name}-{each['name']}-{each.get('replicas', 1) - 1}"
    inner = (each.get("template") or {}).get("spec") or {}
    pod = f"{job}-{inner.get('completions', 1) - 1}-abcde"
    for what, made in (("job", job), ("pod", pod)):
        if len(made) > _LONGEST:
            yield f"JobSet name is too long, {what} names generated for this JobSet will exceed 63 characters"
        elif not _LABEL.fullmatch(made):
            yield f"{made}: a DNS-1035 label must consist of lower case alphanumeric characters or '-'"


_WEBHOOKS: dict[tuple[str, str], tuple[str, Callable[[Store, Mapping[str, Any]], Iterator[str]]]] = {
    ("kubeflow.org", "pytorchjobs"): (
        "validator.pytorchjob.training-operator.kubeflow.org",
        _pytorch_job,
    ),
    ("jobset.x-k8s.io", "jobsets"): ("vjobset.kb.io", _job_set),
    ("trainer.kubeflow.org", "trainjobs"): ("validator.trainjob.trainer.kubeflow.org", _train_job),
}
