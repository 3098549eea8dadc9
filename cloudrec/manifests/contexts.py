"""What each template may place. All decisions were taken before one is made; None leaves a key out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.manifests.rendering import Context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.manifests.pods import Pod


@dataclass(frozen=True, kw_only=True)
class Namespace(Context):
    """Where runs live.

    Args:
        name: its name.
        labels: whose it is, and what pods in it may be.
    """

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Named(Context):
    """What every object in a namespace has.

    Args:
        name: its name.
        namespace: where it is.
        labels: whose it is.
    """

    name: str
    namespace: str
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ServiceAccount(Named):
    """What pods run as; its token is mounted nowhere.

    Args:
        annotations: what makes it an identity of the cloud.
    """

    annotations: Mapping[str, str] | None


@dataclass(frozen=True, kw_only=True)
class ConfigMap(Named):
    """Files that pods read.

    Args:
        data: their texts by name.
    """

    data: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class HeadlessService(Named):
    """Gives each pod of a run a name in DNS, before it is ready.

    Args:
        selector: labels of the pods.
        port: where ranks meet.
    """

    selector: Mapping[str, str]
    port: int


@dataclass(frozen=True, kw_only=True)
class NetworkPolicy(Named):
    """With whom pods may talk; with nobody else.

    Args:
        selector: labels of the pods.
        ingress: who may reach them.
        egress: whom they may reach.
    """

    selector: Mapping[str, str]
    ingress: Sequence[Mapping[str, Any]]
    egress: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class PodDisruptionBudget(Named):
    """How many pods drains must leave at any time.

    Args:
        selector: labels of the pods.
        min_available: so many.
    """

    selector: Mapping[str, str]
    min_available: int


@dataclass(frozen=True, kw_only=True)
class JobSpec(Context):
    """A Job of one pod a node, with what their ends mean.

    Args:
        nodes: pods.
        backoff_limit: pods whose crash is forgiven.
        container: the container whose exit code counts.
        final_codes: exit codes after which no pod is started again.
        again_codes: exit codes that are no failure: another pod goes on.
        success_policy: when it has succeeded, where that is before all pods have.
        pod: the pod of each node.
    """

    nodes: int
    backoff_limit: int
    container: str
    final_codes: Sequence[int]
    again_codes: Sequence[int]
    success_policy: Mapping[str, Any] | None
    pod: Pod


@dataclass(frozen=True, kw_only=True)
class IndexedJob(Named):
    """The launcher torchrun's run.

    Args:
        spec: its pods.
    """

    spec: JobSpec


@dataclass(frozen=True, kw_only=True)
class PyTorchJob(Named):
    """A run of Kubeflow's training operator.

    Args:
        nodes: pods.
        min_nodes: with how many it may go on.
        processes: ranks on each, a text as the API has it.
        rendezvous_host: where ranks meet.
        rendezvous_port: at which port.
        rendezvous_id: which tells launches apart.
        max_restarts: how often torchrun starts ranks again.
        pod: the pod of each node.
    """

    nodes: int
    min_nodes: int
    processes: str
    rendezvous_host: str
    rendezvous_port: int
    rendezvous_id: str
    max_restarts: int
    pod: Pod


@dataclass(frozen=True, kw_only=True)
class TrainingRuntime(Named):
    """How Kubeflow Trainer runs a run: as a JobSet of this one Job.

    Args:
        nodes: pods.
        spec: the Job.
    """

    nodes: int
    spec: JobSpec


@dataclass(frozen=True, kw_only=True)
class TrainJob(Named):
    """A run of Kubeflow Trainer.

    Args:
        runtime: its TrainingRuntime.
        nodes: pods.
        processes: ranks on each.
        image: the trainer's image.
    """

    runtime: str
    nodes: int
    processes: int
    image: str


@dataclass(frozen=True, kw_only=True)
class RayJob(Named):
    """A run in a Ray cluster of its own.

    Args:
        entrypoint: the driver's command, which is run at the head.
        backoff_limit: how often all of it is started again, with a new cluster.
        ray_version: of the image.
        nodes: workers.
        gpus: GPUs of each, a text as Ray's parameters are.
        head: the head's pod.
        worker: the pod of each node.
    """

    entrypoint: str
    backoff_limit: int
    ray_version: str
    nodes: int
    gpus: str
    head: Pod
    worker: Pod


@dataclass(frozen=True, kw_only=True)
class ProbeJob(Named):
    """One pod that tells, before a launch, what pods can reach.

    Args:
        deadline_s: seconds that it may take, its image's download included.
        keep_s: seconds that it stays after its end, to be read.
        pod: the pod.
    """

    deadline_s: int
    keep_s: int
    pod: Pod


@dataclass(frozen=True, kw_only=True)
class GuardCronJob(Named):
    """The guard, again and again.

    Args:
        schedule: when, as cron has it.
        deadline_s: seconds that one round may take.
        pod: the pod.
    """

    schedule: str
    deadline_s: int
    pod: Pod


@dataclass(frozen=True, kw_only=True)
class Role(Named):
    """What may be done in a namespace.

    Args:
        rules: API groups, resources and verbs.
    """

    rules: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class ClusterRole(Context):
    """What may be done in the whole cluster.

    Args:
        name: its name.
        labels: whose it is.
        rules: API groups, resources and verbs.
    """

    name: str
    labels: Mapping[str, str]
    rules: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class ClusterRoleBinding(Named):
    """Who may do it.

    Args:
        role: the role.
        service_account: whose it is, in the namespace.
    """

    role: str
    service_account: str


@dataclass(frozen=True, kw_only=True)
class RoleBinding(Named):
    """Who may do it.

    Args:
        role: the role.
        service_account: whose it is.
    """

    role: str
    service_account: str
