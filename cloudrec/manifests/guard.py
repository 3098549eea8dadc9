"""The guard in the cluster: every few minutes it sees whether the cluster's time or money is up.

It may see and stop the namespace's runs and note what it did; what it may do to the cloud's node pools is for
its service account's identity to say. It is the one pod of ours that has a token of the API server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.errors import SpecError
from cloudrec.manifests import contexts, network
from cloudrec.manifests.build import UNPRIVILEGED
from cloudrec.manifests.commands import POD
from cloudrec.manifests.environment import check as check_variables
from cloudrec.manifests.environment import entries, literal
from cloudrec.manifests.names import ROLE, check_image, check_labels, cluster_labels
from cloudrec.manifests.pods import Container, Pod
from cloudrec.manifests.rendering import render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kube.target import Target
    from cloudrec.manifests.rendering import Context

GUARD = "guard"
NAME = "cloudrec-guard"
NOTE = "guard.json"  # in its ConfigMap
_API_PORTS = (443, 6443)
_DEADLINE_S = 600  # one round: stop the runs, wait for their checkpoints, scale the pools
_RESOURCES = {"cpu": "100m", "memory": "256Mi"}
_RUNS = {
    "batch": "jobs",
    "kubeflow.org": "pytorchjobs",
    "trainer.kubeflow.org": "trainjobs",
    "ray.io": "rayjobs",
}


@dataclass(frozen=True, kw_only=True)
class Guarding:
    """What the guard of a cluster is to do.

    Attributes:
        cluster: the cluster's name.
        owner: who answers for it.
        image: what it runs from: the trainer's image will do.
        note: what it is told: the cluster and its end, as `cloudrec.pod.guard` reads it.
        cordons: whether it may close nodes, where it is not the cloud that takes them away.
        environment: what its cloud's client wants to know.
        annotations: what makes its service account an identity of the cloud.
        pod_labels: what makes its pod use it.
        schedule: when it looks, as cron has it.
    """

    cluster: str
    owner: str
    image: str
    note: str = "{}"
    cordons: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    schedule: str = "*/2 * * * *"


def guard_objects(target: Target, guarding: Guarding) -> tuple[dict[str, Any], ...]:
    """Return the guard's objects in the order in which they are applied; the namespace is there before.

    Raises:
        SpecError: a name, the image or a variable is nothing that Kubernetes takes.
    """
    check_labels(guarding.cluster, guarding.owner)
    check_image(guarding.image)
    check_variables(guarding.environment)
    if len(guarding.schedule.split()) != 5:  # noqa: PLR2004 - cron's fields
        raise SpecError(f"the guard's schedule {guarding.schedule!r} is none that cron knows")
    labels = {**cluster_labels(guarding.cluster, guarding.owner), ROLE: GUARD}
    named: dict[str, Any] = {"name": NAME, "namespace": target.namespace, "labels": labels}
    parts = (
        contexts.ServiceAccount(**named, annotations=dict(guarding.annotations) or None),
        contexts.ConfigMap(**named, data={NOTE: guarding.note}),
        contexts.Role(**named, rules=_rules()),
        contexts.RoleBinding(**named, role=NAME, service_account=NAME),
        contexts.NetworkPolicy(
            **named, selector={ROLE: GUARD}, ingress=[], egress=network.outwards(to=None, ports=_API_PORTS)
        ),
        contexts.GuardCronJob(
            **named, schedule=guarding.schedule, deadline_s=_DEADLINE_S, pod=_pod(guarding, labels)
        ),
    )
    return tuple(render(each) for each in (*_cordoning(target, guarding, labels), *parts))


def _cordoning(target: Target, guarding: Guarding, labels: Mapping[str, str]) -> tuple[Context, ...]:
    """Return what lets it close nodes, and see which cluster it is in; nothing where it is not to."""
    if not guarding.cordons:
        return ()
    name = f"{NAME}-{guarding.cluster}"
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]},
        {
            "apiGroups": [""],
            "resources": ["namespaces"],
            "resourceNames": ["kube-system"],
            "verbs": ["get"],
        },
    ]
    return (
        contexts.ClusterRole(name=name, labels=labels, rules=rules),
        contexts.ClusterRoleBinding(
            name=name, namespace=target.namespace, labels=labels, role=name, service_account=NAME
        ),
    )


def _rules() -> list[dict[str, Any]]:
    runs = [
        {"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "patch"]}
        for group, resource in _RUNS.items()
    ]
    note = {"resources": ["configmaps"], "resourceNames": [NAME], "verbs": ["get", "patch"]}
    return [
        *runs,
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": [""], **note},
    ]


def _pod(guarding: Guarding, labels: Mapping[str, str]) -> Pod:
    told = {name: literal(value) for name, value in guarding.environment.items()}
    container = Container(
        name=GUARD,
        image=guarding.image,
        command=(*POD, GUARD),
        args=None,
        environment=entries({"CLOUDREC_CLUSTER": guarding.cluster, "HOME": "/tmp", **told}),  # noqa: S108 - a volume
        ports=None,
        requests=_RESOURCES,
        limits=_RESOURCES,
        lifecycle=None,
        capabilities=None,
        mounts=[{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a volume of the pod
    )
    return Pod(
        labels={**labels, **guarding.pod_labels},
        annotations=None,
        service_account=NAME,
        token=True,
        restart_policy="Never",
        grace_s=30,
        priority_class=None,
        subdomain=None,
        node_selector=None,
        tolerations=None,
        affinity=None,
        non_root=True,
        user=UNPRIVILEGED,
        sidecars=None,
        containers=[container],
        volumes=[{"name": "tmp", "emptyDir": {}}],
    )
