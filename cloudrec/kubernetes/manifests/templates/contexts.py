"""The values of each template. They are final: a template decides nothing. None leaves a key out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.manifests.templates.rendering import TemplateContext

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kubernetes.manifests.templates.pods import Pod


@dataclass(frozen=True, kw_only=True)
class Namespace(TemplateContext):
    """The namespace of runs.

    Args:
        name: its name.
        labels: its labels, with the Pod Security Standard.
    """

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Named(TemplateContext):
    """The values of every object in a namespace.

    Args:
        name: its name.
        namespace: its namespace.
        labels: its labels.
    """

    name: str
    namespace: str
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ServiceAccount(Named):
    """The service account of pods; its token is not mounted.

    Args:
        annotations: annotations that give it an identity of the cloud; None for none.
    """

    annotations: Mapping[str, str] | None


@dataclass(frozen=True, kw_only=True)
class ConfigMap(Named):
    """Files that pods read.

    Args:
        data: the texts of the files, by name.
    """

    data: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Lease(Named):
    """The lease of the process that acts for the cluster; the process itself writes its holder."""


@dataclass(frozen=True, kw_only=True)
class HeadlessService(Named):
    """The Service that gives each pod of a run a name in DNS, even before the pod is ready.

    Args:
        selector: labels of the pods.
        port: the port of the rendezvous.
    """

    selector: Mapping[str, str]
    port: int


@dataclass(frozen=True, kw_only=True)
class NetworkPolicy(Named):
    """The connections that pods may have; all others are refused.

    Args:
        selector: labels of the pods.
        ingress: rules for incoming connections; None for none. A real server drops an empty list, so each
            apply of one would change the object.
        egress: rules for outgoing connections.
    """

    selector: Mapping[str, str]
    ingress: Sequence[Mapping[str, Any]] | None
    egress: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class PodDisruptionBudget(Named):
    """The number of pods that drains must leave at any time.

    Args:
        selector: labels of the pods.
        min_available: the number.
    """

    selector: Mapping[str, str]
    min_available: int


@dataclass(frozen=True, kw_only=True)
class JobSpec(TemplateContext):
    """The spec of a Job with one pod on each node, and its podFailurePolicy.

    Args:
        nodes: number of pods.
        backoff_limit: number of crashes, of all pods together, after which the Job fails; also of each index.
        container: the container whose exit code counts.
        final_codes: exit codes that fail the Job.
        again_codes: exit codes that are no failure: another pod continues.
        success_policy: the condition for a success before all pods have succeeded; None for none.
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
    """A run of the launcher torchrun.

    Args:
        spec: the Job's spec.
    """

    spec: JobSpec


@dataclass(frozen=True, kw_only=True)
class PyTorchJob(Named):
    """A run of Kubeflow's training operator.

    Args:
        nodes: number of pods.
        min_nodes: number of pods with which it may continue.
        processes: ranks on each node; a string in this API.
        rendezvous_host: the host of the rendezvous.
        rendezvous_port: its port.
        rendezvous_id: the id of the launch.
        max_restarts: how often torchrun starts the ranks again.
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
class JobSet(Named):
    """A JobSet with one Job.

    Args:
        spec: the Job's spec.
    """

    spec: JobSpec


@dataclass(frozen=True, kw_only=True)
class TrainingRuntime(Named):
    """The runtime of a run of Kubeflow Trainer: a JobSet with one Job.

    Args:
        nodes: number of pods.
        spec: the Job's spec.
    """

    nodes: int
    spec: JobSpec


@dataclass(frozen=True, kw_only=True)
class TrainJob(Named):
    """A run of Kubeflow Trainer.

    Args:
        runtime: the name of its TrainingRuntime.
        nodes: number of pods.
        processes: ranks on each node.
        image: the trainer's image.
    """

    runtime: str
    nodes: int
    processes: int
    image: str


@dataclass(frozen=True, kw_only=True)
class RayJob(Named):
    """A run in a separate Ray cluster.

    Args:
        entrypoint: the driver's command, which runs at the head.
        backoff_limit: how often the operator starts the job again, with a new cluster.
        ray_version: the version of Ray in the image.
        nodes: number of workers.
        gpus: GPUs of each worker; a string, as all of Ray's start parameters.
        head: the head's pod.
        worker: the pod of each node.
        start_timeout_s: seconds in which all pods must run; None for no limit.
    """

    entrypoint: str
    backoff_limit: int
    ray_version: str
    nodes: int
    gpus: str
    head: Pod
    worker: Pod
    start_timeout_s: int | None = None


@dataclass(frozen=True, kw_only=True)
class ProbeJob(Named):
    """The Job of a probe, which checks data and storage before a launch.

    Args:
        deadline_s: its time limit in seconds, with the download of the image.
        keep_s: seconds after its end until the cluster deletes it.
        pod: the pod.
    """

    deadline_s: int
    keep_s: int
    pod: Pod


@dataclass(frozen=True, kw_only=True)
class GuardCronJob(Named):
    """The CronJob of the guard.

    Args:
        schedule: its times, in cron's notation.
        start_s: seconds after its time in which a pod may still be started.
        deadline_s: the time limit of one pod in seconds.
        pod: the pod.
    """

    schedule: str
    start_s: int
    deadline_s: int
    pod: Pod


@dataclass(frozen=True, kw_only=True)
class Role(Named):
    """Permissions in a namespace.

    Args:
        rules: API groups, resources and verbs.
    """

    rules: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class ClusterRole(TemplateContext):
    """Permissions in the whole cluster.

    Args:
        name: its name.
        labels: its labels.
        rules: API groups, resources and verbs.
    """

    name: str
    labels: Mapping[str, str]
    rules: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class ClusterRoleBinding(TemplateContext):
    """The binding of the cluster role of the same name to a service account.

    Args:
        name: its name.
        labels: its labels.
        service_account: the service account's name.
        namespace: the service account's namespace.
    """

    name: str
    labels: Mapping[str, str]
    service_account: str
    namespace: str


@dataclass(frozen=True, kw_only=True)
class AdmissionPolicy(TemplateContext):
    """Rules for requests of one user, in the whole cluster.

    Args:
        name: its name.
        labels: its labels.
        spec: which requests it checks, and what they must fulfil.
    """

    name: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class AdmissionPolicyBinding(TemplateContext):
    """What gives an admission policy its effect.

    Args:
        name: its name.
        labels: its labels.
        spec: the policy's name, and what a violation causes.
    """

    name: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RoleBinding(Named):
    """The binding of a role to a service account.

    Args:
        role: the role's name.
        service_account: the service account's name.
    """

    role: str
    service_account: str


@dataclass(frozen=True, kw_only=True)
class ResourceClaimTemplate(TemplateContext):
    """The template of the claims of a run's pods for the devices of one class of whole nodes.

    Args:
        name: its name.
        namespace: the namespace of the run.
        labels: its labels, and those of each claim.
        request: the devices of one pod of one class.
    """

    name: str
    namespace: str
    labels: Mapping[str, str]
    request: Mapping[str, Any]
