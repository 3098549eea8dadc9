"""The manifests of the guard, which checks every few minutes whether the cluster's time or budget has ended.

The guard may list and suspend the namespace's runs, end pods of dead nodes, and record its actions. Where it
meters the cluster's cost, it may also list the nodes; there, an admission policy limits what it changes in an
object (`guard_limits`). The identity of its service account decides about its
permissions for the cloud's node pools. It is cloudrec's only pod with a token of the API server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.errors import SpecError
from cloudrec.kubernetes import guard_limits, topology
from cloudrec.kubernetes.manifests import network
from cloudrec.kubernetes.manifests.commands import POD
from cloudrec.kubernetes.manifests.environment import WORK, endpoint_ports, entries, literal
from cloudrec.kubernetes.manifests.environment import check as check_variables
from cloudrec.kubernetes.manifests.names import ROLE, RUN, check_image, check_labels, cluster_labels
from cloudrec.kubernetes.manifests.pods import UNPRIVILEGED, metrics_ports, scraped
from cloudrec.kubernetes.manifests.setup import urls_of, with_setup
from cloudrec.kubernetes.manifests.templates import contexts
from cloudrec.kubernetes.manifests.templates.pods import Container, Pod
from cloudrec.kubernetes.manifests.templates.rendering import render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kubernetes.client.target import ClusterTarget, PodSetup
    from cloudrec.kubernetes.manifests.templates.rendering import TemplateContext

GUARD = "guard"
NAME = "cloudrec-guard"
LEASE = "cloudrec-keeper"  # of the process that gives runs their nodes
NOTE = "guard.json"  # the key in its ConfigMap
MARK = "/tmp/cloudrec-guard"  # noqa: S108 - a file on the pod's volume, which each completed round touches
# The kinds of `guard_objects` in its namespace. All are deleted when the end is lifted; the CronJob first, so
# no round starts.
KINDS = (
    "batch/v1/CronJob",
    "ConfigMap",
    "RoleBinding",
    "Role",
    "ServiceAccount",
    "NetworkPolicy",
)
POLICY_KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")  # in clusters of `up`
_API_PORTS = (443, 6443)
_DEADLINE_S = 600  # one round: stop the runs, wait for their checkpoints, scale the pools
_RESOURCES = {"cpu": "100m", "memory": "256Mi"}
# A pod that installs its packages first makes rounds for hours: a pod for each round would download them
# hundreds of times a day, and could enforce nothing while the package index is away.
_SHIFT_S, _PAUSE_S = 6 * 3600, 120
_MANAGED_PAUSE_S = 15  # nodes of which a run waits cost as much as those that train
_SETUP_RESOURCES = {"cpu": "500m", "memory": "768Mi"}
_PROBE_PERIOD_S, _FRESH_MINUTES = 5, 15
_RUNS = {
    "batch": "jobs",
    "kubeflow.org": "pytorchjobs",
    "trainer.kubeflow.org": "trainjobs",
    "jobset.x-k8s.io": "jobsets",
    "ray.io": "rayjobs",
}


@dataclass(frozen=True, kw_only=True)
class Guarding:
    """The values of a cluster's guard.

    Attributes:
        cluster: the cluster's name.
        owner: the owner for the labels.
        image: its image, such as the trainer's.
        setup: what its pod installs in it first; None if the image has the guard.
        note: the cluster and its expiry as JSON, which `cloudrec.keeper.guard` reads.
        environment: variables for the cloud's client.
        annotations: annotations that give its service account an identity of the cloud.
        pod_labels: labels by which its pod uses that identity.
        schedule: the times of its rounds, in cron's notation.
        meters: whether it lists the cluster's nodes, to meter what they cost.
        manages: whether it gives the cluster's runs their nodes.
        secrets: variables with the values of Secrets: SECRET/KEY of each. A missing Secret is no error.
        ports: ports that it connects to, besides those of the API server.
        metrics_port: the port at which it serves metrics; 0 for none.
    """

    cluster: str
    owner: str
    image: str
    setup: PodSetup | None = None
    note: str = "{}"
    environment: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    schedule: str = "*/2 * * * *"
    meters: bool = False
    manages: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict)
    ports: Sequence[int] = ()
    metrics_port: int = 0

    @property
    def stays(self) -> bool:
        """Whether a pod makes rounds for hours: it installs packages, has frequent rounds, or is scraped."""
        return self.setup is not None or self.manages or bool(self.metrics_port)


def guard_objects(target: ClusterTarget, guarding: Guarding) -> tuple[dict[str, Any], ...]:
    """Return the guard's objects in the order in which they are applied; the namespace must exist.

    Raises:
        SpecError: a name, the image, a variable or the schedule is not valid.
    """
    check_labels(guarding.cluster, guarding.owner)
    check_image(guarding.image)
    check_variables(guarding.environment)
    if len(guarding.schedule.split()) != 5:  # noqa: PLR2004 - cron's fields
        raise SpecError(
            f"the guard's schedule {guarding.schedule!r} is no cron schedule",
            remedy="write five fields, such as '*/2 * * * *'",
        )
    labels = {**cluster_labels(guarding.cluster, guarding.owner), ROLE: GUARD}
    named: dict[str, Any] = {"name": NAME, "namespace": target.namespace, "labels": labels}
    parts = (
        contexts.ServiceAccount(**named, annotations=dict(guarding.annotations) or None),
        contexts.ConfigMap(**named, data={NOTE: guarding.note}),
        contexts.Role(**named, rules=_rules(meters=guarding.meters, manages=guarding.manages)),
        contexts.RoleBinding(**named, role=NAME, service_account=NAME),
        *(_of_the_cluster(target, labels, manages=guarding.manages) if guarding.meters else ()),
        *((contexts.Lease(**{**named, "name": LEASE}),) if guarding.manages else ()),
        contexts.NetworkPolicy(
            **named,
            selector={ROLE: GUARD},
            ingress=network.from_scrapers(guarding.metrics_port) or None,
            egress=network.outwards(
                to=None, ports=(*_API_PORTS, *guarding.ports, *endpoint_ports(urls_of(guarding.setup)))
            ),
        ),
        contexts.GuardCronJob(
            **named,
            schedule=guarding.schedule,
            start_s=_DEADLINE_S,
            deadline_s=_DEADLINE_S + (_SHIFT_S if guarding.stays else 0),
            pod=_pod(guarding, labels),
        ),
    )
    return tuple(render(each) for each in parts)


def _of_the_cluster(
    target: ClusterTarget, labels: Mapping[str, str], *, manages: bool
) -> tuple[TemplateContext, ...]:
    """Return the permission to list the nodes and cordon those that a run leaves, and the limits of changes.

    The policy is first, so that it is there before the permission for nodes.
    """
    verbs = ["list", *(["patch"] if manages else [])]
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": verbs}]
    account = f"system:serviceaccount:{target.namespace}:{NAME}"
    policy = guard_limits.policy_spec(account=account, run_label=RUN, runs=_RUNS)
    return (
        contexts.AdmissionPolicy(name=NAME, labels=labels, spec=policy),
        contexts.AdmissionPolicyBinding(name=NAME, labels=labels, spec=guard_limits.binding_spec(NAME)),
        contexts.ClusterRole(name=NAME, labels=labels, rules=rules),
        contexts.ClusterRoleBinding(
            name=NAME, labels=labels, service_account=NAME, namespace=target.namespace
        ),
    )


def _rules(*, meters: bool, manages: bool) -> list[dict[str, Any]]:
    runs = [
        {"apiGroups": [group], "resources": [resource], "verbs": ["list", "patch"]}
        for group, resource in _RUNS.items()
    ]
    own = [NAME, *([topology.NAME] if meters else [])]  # without nodes, it has no table to keep
    lease = {"resources": ["leases"], "resourceNames": [LEASE], "verbs": ["get", "patch"]}
    note = {"resources": ["configmaps"], "resourceNames": own, "verbs": ["get", "patch"]}
    return [
        *runs,
        # To end the pods of dead nodes: `keeper.tending`.
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
        {"apiGroups": [""], **note},
        *([{"apiGroups": ["coordination.k8s.io"], **lease}] if manages else []),
        # How far runs are: `keeper.managed.progress`.
        *([{"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}] if manages else []),
    ]


def _pod(guarding: Guarding, labels: Mapping[str, str]) -> Pod:
    given = {name: literal(value) for name, value in guarding.environment.items()}
    pause_s = _MANAGED_PAUSE_S if guarding.manages else _PAUSE_S
    folders = {"tmp": "/tmp", **({"work": WORK} if guarding.setup else {})}  # noqa: S108 - volumes of the pod
    container = Container(
        name=GUARD,
        image=guarding.image,
        command=(*POD, GUARD),
        args=["--for", str(_SHIFT_S), "--every", str(pause_s)] if guarding.stays else None,
        environment=entries(
            {
                "CLOUDREC_CLUSTER": guarding.cluster,
                "HOME": "/tmp",  # noqa: S108 - a volume
                **({"CLOUDREC_METRICS_PORT": str(guarding.metrics_port)} if guarding.metrics_port else {}),
                **given,
                **{name: _secret(reference) for name, reference in guarding.secrets.items()},
            }
        ),
        ports=metrics_ports(guarding.metrics_port) or None,
        requests=_RESOURCES,
        limits=_RESOURCES,
        lifecycle=None,
        capabilities=None,
        mounts=[{"name": name, "mountPath": path} for name, path in folders.items()],
        readiness=_readiness() if guarding.stays else None,
    )
    pod = Pod(
        labels={**labels, **guarding.pod_labels},
        annotations=scraped(guarding.metrics_port) or None,
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
        volumes=[{"name": name, "emptyDir": {}} for name in folders],
    )
    return with_setup(pod, guarding.setup, {}, resources=_SETUP_RESOURCES)


def _secret(reference: str) -> dict[str, Any]:
    """Return the reference to a key of a Secret. It is optional: the guard enforces the end without it."""
    name, _, key = reference.rpartition("/")
    return {"secretKeyRef": {"name": name, "key": key, "optional": True}}


def _readiness() -> dict[str, Any]:
    """Return the probe of a guard that makes several rounds: the last one was a short time ago."""
    script = f'test -n "$(find {MARK} -mmin -{_FRESH_MINUTES})"'
    return {
        "exec": {"command": ["sh", "-c", script]},
        "periodSeconds": _PROBE_PERIOD_S,
        "failureThreshold": 1,
    }
