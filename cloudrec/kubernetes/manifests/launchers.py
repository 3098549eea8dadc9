"""The objects of each launcher, from which its operator, or Kubernetes itself, creates a run's pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.manifests import ray
from cloudrec.kubernetes.manifests.commands import AGENT, agent_arguments
from cloudrec.kubernetes.manifests.environment import indexed
from cloudrec.kubernetes.manifests.names import ENGINES, QUEUE, RENDEZVOUS_PORT, run_labels, trainers
from cloudrec.kubernetes.manifests.pods import Shape, training_pod
from cloudrec.kubernetes.manifests.templates import contexts
from cloudrec_contract.exit_codes import FINAL, GANG_INCOMPLETE, RESTARTS_SPENT, STOPPED, STOPPED_FOR_OPERATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.kubernetes.manifests.templates.rendering import TemplateContext
    from cloudrec.kubernetes.manifests.workload import Workload
    from cloudrec.transport import Profile

    Maker = Callable[[Workload, ClusterTarget, Profile], tuple[TemplateContext, ...]]


def torchrun(workload: Workload, target: ClusterTarget, profile: Profile) -> tuple[TemplateContext, ...]:
    """Return a headless Service, which gives the pods names in DNS, and an Indexed Job."""
    shape = _indexed_shape("torchrun", workload, target)
    spec = _job_spec(workload, training_pod(workload, target, profile, shape), shape)
    service = contexts.HeadlessService(
        **_named(workload, target), selector=trainers(workload.run), port=RENDEZVOUS_PORT
    )
    return (service, contexts.IndexedJob(**_queued(workload, target), spec=spec))


def pytorchjob(workload: Workload, target: ClusterTarget, profile: Profile) -> tuple[TemplateContext, ...]:
    """Return a PyTorchJob; its operator creates a Service with the name of each pod."""
    host = ENGINES["pytorchjob"].host.format(run=workload.run, index=0)
    arguments = agent_arguments(
        workload, target, rendezvous=host, address=f"$(POD_NAME).{target.namespace}.svc"
    )
    shape = Shape(
        container=ENGINES["pytorchjob"].container,
        command=AGENT,
        args=arguments,
        own={"CLOUDREC_AGAIN_CODE": str(STOPPED_FOR_OPERATOR), **_election(workload)},
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


def trainjob(workload: Workload, target: ClusterTarget, profile: Profile) -> tuple[TemplateContext, ...]:
    """Return a TrainingRuntime and a TrainJob that uses it.

    The runtimes that Trainer ships count a preemption as a failure.
    """
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


def jobset(workload: Workload, target: ClusterTarget, profile: Profile) -> tuple[TemplateContext, ...]:
    """Return a JobSet with one Indexed Job; its operator makes a headless Service with the JobSet's name."""
    shape = _indexed_shape("jobset", workload, target)
    spec = _job_spec(workload, training_pod(workload, target, profile, shape), shape)
    return (contexts.JobSet(**_queued(workload, target), spec=spec),)


def rayjob(workload: Workload, target: ClusterTarget, profile: Profile) -> tuple[TemplateContext, ...]:
    """Return a RayJob, whose driver starts one agent on each worker."""
    return (ray.job(workload, target, profile, _queued(workload, target)),)


MAKERS: Mapping[str, Maker] = {
    "torchrun": torchrun,
    "pytorchjob": pytorchjob,
    "trainjob": trainjob,
    "jobset": jobset,
    "rayjob": rayjob,
}


def _indexed_shape(launcher: str, workload: Workload, target: ClusterTarget) -> Shape:
    """Return the shape of an Indexed Job's pods, each of which has its index in its DNS name."""
    engine, run = ENGINES[launcher], workload.run
    domain = f".{run}.{target.namespace}.svc"
    first = engine.host.format(run=run, index=0)
    in_place = (
        workload.in_place and launcher == "torchrun"
    )  # an operator's own copy of the pod may lack rules
    return Shape(
        container=engine.container,
        command=AGENT,
        args=agent_arguments(workload, target, rendezvous=f"{first}.{run}", address="$(CLOUDREC_ADDRESS)"),
        own={
            **indexed(engine.host.format(run=run, index="$(CLOUDREC_INDEX)") + domain),
            **_election(workload),
            **({"CLOUDREC_IN_PLACE": "1"} if in_place else {}),
        },
        in_place=in_place,
        subdomain=run if launcher == "torchrun" else None,  # a JobSet sets the subdomain itself
    )


def _job_spec(workload: Workload, pod: Any, shape: Shape) -> contexts.JobSpec:  # noqa: ANN401 - a Pod
    elastic = workload.min_nodes < workload.nodes
    return contexts.JobSpec(
        nodes=workload.nodes,
        backoff_limit=workload.max_restarts,
        container=shape.container,
        # Bad configuration, bad data, an unfit node, no restarts left: another pod would end in the same way.
        # Without all nodes in time, the others must end too, so that they hold no nodes.
        final_codes=(*FINAL, RESTARTS_SPENT, GANG_INCOMPLETE),
        again_codes=(STOPPED,),
        # The run may finish without nodes that were lost, also the first one: the Job must not wait for their
        # pods. An agent succeeds only after the pod with rank 0 has uploaded its files, so the Job never ends
        # that pod too early, whichever index it has.
        success_policy={"rules": [{"succeededCount": workload.min_nodes}]} if elastic else None,
        pod=pod,
    )


def _election(workload: Workload) -> dict[str, str]:
    """Return the variable by which agents elect another host of the rendezvous if the first pod is lost."""
    is_elastic = workload.min_nodes < workload.nodes
    return {"CLOUDREC_ELECTS_HOST": "1"} if is_elastic and workload.results else {}


def _named(workload: Workload, target: ClusterTarget) -> dict[str, Any]:
    return {
        "name": workload.run,
        "namespace": target.namespace,
        "labels": {**run_labels(workload), **workload.wishes},
    }


def _queued(workload: Workload, target: ClusterTarget) -> dict[str, Any]:
    """Return name, namespace and labels, with Kueue's label for the object that it admits."""
    named = _named(workload, target)
    return {**named, "labels": {**named["labels"], **({QUEUE: workload.queue} if workload.queue else {})}}
