"""TrainJobs of Trainer v2: a JobSet from their runtime, with the TrainJob's own values put in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.kubernetes.controllers.custom_resources.operated import OperatedController
from cloudrec_sandbox.kubernetes.controllers.workloads.job_pods import INDEX
from cloudrec_sandbox.kubernetes.objects.table import copied
from cloudrec_sandbox.kubernetes.storage.mirror import condition, is_true, with_conditions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec_sandbox.kubernetes.storage.mirror import Key, Object

_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_CONTAINER = "node"
_PORT = 29400
_RUNTIMES = {"TrainingRuntime": "trainingruntimes", "ClusterTrainingRuntime": "clustertrainingruntimes"}


class TrainJobController(OperatedController):
    """Controls TrainJobs."""

    resource: ClassVar[str] = "trainjobs"
    kind: ClassVar[str] = "TrainJob"
    source: ClassVar[str] = "trainjob-controller"
    operator: ClassVar[str] = "trainjob"

    def operate(self, obj: Object) -> None:
        """Bring a TrainJob one step further."""
        runtime = self._runtime(obj)
        if runtime is None:
            # Trainer records an event and tries again: its cache may not have the runtime yet
            # (kubeflow/trainer, pkg/controller/trainjob_controller.go: reconcileObjects).
            reference = obj["spec"]["runtimeRef"]
            kind = reference.get("kind", "ClusterTrainingRuntime")
            self.record(
                obj,
                "TrainJobResourcesCreationFailed",
                "TrainJob resources reconciliation failed: "
                f"{kind}.trainer.kubeflow.org {reference['name']!r} not found",
                warning=True,
            )
            return
        sets = self.cluster.mirror.owned(obj, "jobsets")
        if not sets:
            self.make(obj, "jobsets", self._jobset(obj, runtime))
            return
        self._follow(obj, sets[0])

    def concerned(self, resource: str, obj: Object) -> Iterable[Key]:
        """Return the waiting TrainJobs when a runtime appears."""
        return self.waiting() if resource in _RUNTIMES.values() else super().concerned(resource, obj)

    def _follow(self, obj: Object, jobset: Object) -> None:
        is_suspended = bool(obj["spec"].get("suspend"))
        if bool(jobset["spec"].get("suspend")) != is_suspended:
            space, name = obj["metadata"]["namespace"], jobset["metadata"]["name"]
            change = {"spec": {"suspend": is_suspended}}
            self.cluster.attempt(lambda: self.cluster.store.patch("jobsets", space, name, change))
        wishes = []
        if is_suspended or condition(obj, "Suspended"):
            reason = "Suspended" if is_suspended else "Resumed"
            words = f"TrainJob is {reason.lower()}"
            wishes.append(
                {"type": "Suspended", "status": str(is_suspended), "reason": reason, "message": words}
            )
        for kind, own in (("Completed", "Complete"), ("Failed", "Failed")):
            found = condition(jobset, kind)
            if found is not None and is_true(jobset, kind):
                wishes.append(
                    {**{name: found[name] for name in ("status", "reason", "message")}, "type": own}
                )
        self._set(obj, wishes, jobs=jobset.get("status", {}).get("replicatedJobsStatus"))

    def _set(
        self, obj: Object, wishes: list[dict[str, Any]], *, jobs: list[dict[str, Any]] | None = None
    ) -> None:
        status: dict[str, Any] = {"conditions": with_conditions(obj, wishes, self.cluster.timestamp())}
        if jobs is not None:
            status["jobsStatus"] = jobs
        self.cluster.patch_status(self.resource, obj, status)

    def _runtime(self, obj: Object) -> Object | None:
        reference = obj["spec"]["runtimeRef"]
        plural = _RUNTIMES.get(reference.get("kind", "ClusterTrainingRuntime"), "")
        space = obj["metadata"]["namespace"] if plural == "trainingruntimes" else ""
        return self.cluster.mirror.get(plural, space, reference["name"])

    def _jobset(self, obj: Object, runtime: Object) -> dict[str, Any]:
        template = copied(runtime["spec"]["template"])
        trainer = obj["spec"].get("trainer") or {}
        policy = runtime["spec"].get("mlPolicy") or {}
        nodes = int(trainer.get("numNodes") or policy.get("numNodes") or 1)
        spec = template["spec"]
        for replicated in spec["replicatedJobs"]:
            labels = (replicated["template"].get("metadata") or {}).get("labels") or {}
            if labels.get(_STEP) == "trainer":
                _put_in(replicated["template"]["spec"], obj, trainer, policy, nodes)
        for patch in obj["spec"].get("runtimePatches") or ():
            _apply(spec, ((patch.get("trainingRuntimeSpec") or {}).get("template") or {}).get("spec") or {})
        spec["suspend"] = bool(obj["spec"].get("suspend"))
        metadata = template.get("metadata") or {}
        kept = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
        return {"metadata": {"name": obj["metadata"]["name"], **kept}, "spec": spec}


def _put_in(
    spec: dict[str, Any], obj: Object, trainer: dict[str, Any], policy: dict[str, Any], nodes: int
) -> None:
    """Put the TrainJob's values into the Job that trains."""
    spec["parallelism"] = spec["completions"] = nodes
    spec["completionMode"] = "Indexed"
    for container in spec["template"]["spec"]["containers"]:
        if container["name"] != _CONTAINER:
            continue
        for name in ("image", "command", "args"):
            if trainer.get(name):
                container[name] = trainer[name]
        if trainer.get("resourcesPerNode"):
            container["resources"] = trainer["resourcesPerNode"]
        variables = {each["name"]: each for each in container.get("env") or ()}
        variables |= {each["name"]: each for each in trainer.get("env") or ()}
        if "torch" in policy:
            variables |= {each["name"]: each for each in _torch(obj, trainer, nodes)}
            container["ports"] = [*(container.get("ports") or ()), {"containerPort": _PORT}]
        container["env"] = list(variables.values())


def _torch(obj: Object, trainer: dict[str, Any], nodes: int) -> list[dict[str, Any]]:
    name = obj["metadata"]["name"]
    rank = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
    return [
        {"name": "PET_NNODES", "value": str(nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": str(trainer.get("numProcPerNode") or "auto")},
        {"name": "PET_NODE_RANK", "valueFrom": rank},
        # The name that JobSet gives the first pod of the Job, under the Service with the JobSet's name.
        {"name": "PET_MASTER_ADDR", "value": f"{name}-{_CONTAINER}-0-0.{name}"},
        {"name": "PET_MASTER_PORT", "value": str(_PORT)},
    ]


def _apply(spec: dict[str, Any], patch: dict[str, Any]) -> None:
    """Change replicated Jobs by a runtime patch: objects are merged, list items by their name."""
    for wish in patch.get("replicatedJobs") or ():
        for replicated in spec["replicatedJobs"]:
            if replicated["name"] == wish["name"]:
                replicated["template"] = _merged(replicated["template"], wish.get("template") or {})


def _merged(old: Any, new: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{name: _merged(old.get(name), value) for name, value in new.items()}}
    if (
        isinstance(old, list)
        and isinstance(new, list)
        and all(isinstance(each, dict) for each in [*old, *new])
    ):
        by_name = {each.get("name"): each for each in old}
        for each in new:
            by_name[each.get("name")] = _merged(by_name.get(each.get("name")), each)
        return list(by_name.values())
    return new
