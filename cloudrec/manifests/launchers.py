"""The object of each launcher: what its operator, or Kubernetes itself, makes a run's pods of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.manifests import contexts, ray
from cloudrec.manifests.build import Shape, training_pod
from cloudrec.manifests.commands import AGENT, agent_arguments
from cloudrec.manifests.environment import indexed
from cloudrec.manifests.names import ENGINES, QUEUE, RENDEZVOUS_PORT, run_labels, trainers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.kube.target import Target
    from cloudrec.manifests.rendering import Context
    from cloudrec.manifests.workload import Workload
    from cloudrec.plan.transport import Profile

    Maker = Callable[[Workload, Target, Profile], tuple[Context, ...]]

# Bad configuration, bad data, an unfit node, restarts used up: another pod would end likewise.
FINAL = (64, 65, 69, 70)
AGAIN = 75  # preempted, stopped, or a peer was lost
AGAIN_FOR_OPERATOR = 203  # the same where an operator starts pods again for codes of 128 and more alone


def torchrun(workload: Workload, target: Target, profile: Profile) -> tuple[Context, ...]:
    """An Indexed Job, and the headless Service that names its pods."""
    shape = _indexed_shape("torchrun", workload, target)
    spec = _job_spec(workload, training_pod(workload, target, profile, shape), shape)
    service = contexts.HeadlessService(
        **_named(workload, target), selector=trainers(workload.run), port=RENDEZVOUS_PORT
    )
    return (service, contexts.IndexedJob(**_queued(workload, target), spec=spec))


def pytorchjob(workload: Workload, target: Target, profile: Profile) -> tuple[Context, ...]:
    """A PyTorchJob; its operator makes a Service for each pod, of the pod's name."""
    host = ENGINES["pytorchjob"].host.format(run=workload.run, index=0)
    arguments = agent_arguments(
        workload, target, rendezvous=host, address=f"$(POD_NAME).{target.namespace}.svc"
    )
    shape = Shape(
        container=ENGINES["pytorchjob"].container,
        command=AGENT,
        args=arguments,
        own={"CLOUDREC_AGAIN_CODE": str(AGAIN_FOR_OPERATOR)},
        restart_policy=None,
        ports=[{"name": "pytorchjob-port", "containerPort": RENDEZVOUS_PORT}],
    )
    job = contexts.PyTorchJob(
        **_queued(workload, target),
        nodes=workload.nodes,
        min_nodes=workload.min_nodes,
        processes=str(workload.processes),
        rendezvous_host=host,
        rendezvous_port=RENDEZVOUS_PORT,
        rendezvous_id=f"{workload.run}-{workload.launch}",
        max_restarts=workload.max_restarts,
        pod=training_pod(workload, target, profile, shape),
    )
    return (job,)


def trainjob(workload: Workload, target: Target, profile: Profile) -> tuple[Context, ...]:
    """A TrainJob, and a TrainingRuntime of its own: those shipped with Trainer forgive no preemption."""
    shape = _indexed_shape("trainjob", workload, target)
    spec = _job_spec(workload, training_pod(workload, target, profile, shape), shape)
    runtime = contexts.TrainingRuntime(**_named(workload, target), nodes=workload.nodes, spec=spec)
    job = contexts.TrainJob(
        **_queued(workload, target),
        runtime=workload.run,
        nodes=workload.nodes,
        processes=workload.processes,
        image=workload.image,
    )
    return (runtime, job)


def rayjob(workload: Workload, target: Target, profile: Profile) -> tuple[Context, ...]:
    """A RayJob, whose driver starts one agent on each worker."""
    return (ray.job(workload, target, profile, _queued(workload, target)),)


MAKERS: Mapping[str, Maker] = {
    "torchrun": torchrun,
    "pytorchjob": pytorchjob,
    "trainjob": trainjob,
    "rayjob": rayjob,
}


def _indexed_shape(launcher: str, workload: Workload, target: Target) -> Shape:
    """Return the shape of an Indexed Job's pods, each of which knows its own name by its index."""
    engine, run = ENGINES[launcher], workload.run
    domain = f".{run}.{target.namespace}.svc"
    first = engine.host.format(run=run, index=0)
    return Shape(
        container=engine.container,
        command=AGENT,
        args=agent_arguments(workload, target, rendezvous=f"{first}.{run}", address="$(CLOUDREC_ADDRESS)"),
        own=indexed(engine.host.format(run=run, index="$(CLOUDREC_INDEX)") + domain),
        subdomain=run if launcher == "torchrun" else None,  # a JobSet sets its own
    )


def _job_spec(workload: Workload, pod: Any, shape: Shape) -> contexts.JobSpec:  # noqa: ANN401 - a Pod
    elastic = workload.min_nodes < workload.nodes
    return contexts.JobSpec(
        nodes=workload.nodes,
        backoff_limit=workload.max_restarts,
        container=shape.container,
        final_codes=FINAL,
        again_codes=(AGAIN,),
        # nodes that never came back must not keep a run that has finished without them from its end
        success_policy={"rules": [{"succeededCount": workload.min_nodes}]} if elastic else None,
        pod=pod,
    )


def _named(workload: Workload, target: Target) -> dict[str, Any]:
    return {"name": workload.run, "namespace": target.namespace, "labels": run_labels(workload)}


def _queued(workload: Workload, target: Target) -> dict[str, Any]:
    """Return the same with Kueue's label, for what it is to admit."""
    named = _named(workload, target)
    return {**named, "labels": {**named["labels"], **({QUEUE: workload.queue} if workload.queue else {})}}
